"""The benchmark resumes cell by cell, and its settings are checked."""

from __future__ import annotations

import csv

import pytest

from grasp_control.bench.mapo import VARIANTS, MAPOBenchConfig, run_grid
from grasp_control.mapo.config import MAPOConfig


def rows(out) -> list[dict[str, str]]:
    with open(f"{out}.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_cells_are_kept_and_the_missing_ones_are_run(tmp_path, capsys):
    out = tmp_path / "mapo"
    small = {"programs": 400, "evaluations": 2, "problems": 20, "held_out": 5, "out": str(out)}
    run_grid(MAPOBenchConfig(variants=["mapo"], seeds=[0], **small))
    first = rows(out)
    assert [row["programs"] for row in first] == ["200", "400"]
    assert {(row["task"], row["variant"], row["seed"]) for row in first} == {("lists", "mapo", "0")}
    assert "1 of 1 cells" in capsys.readouterr().out
    run_grid(MAPOBenchConfig(variants=["mapo", "hard-em"], seeds=[0], **small))
    both = rows(out)
    assert both[:2] == first
    assert [row["variant"] for row in both] == ["mapo"] * 2 + ["hard-em"] * 2
    assert "mapo seed 0" not in capsys.readouterr().out
    assert (tmp_path / "mapo.png").stat().st_size > 1000
    assert "| lists | hard-em | 1 |" in (tmp_path / "mapo.md").read_text()


def test_processes_fill_the_same_table(tmp_path):
    small = {"programs": 300, "evaluations": 1, "problems": 20, "held_out": 5, "out": str(tmp_path / "mapo")}
    run_grid(MAPOBenchConfig(variants=["mapo"], seeds=[0], processes=1, **small))
    (row,) = rows(tmp_path / "mapo")
    assert row["programs"] == "300"


def test_every_variant_tries_as_many_programs_an_update():
    for changes in VARIANTS.values():
        settings = MAPOConfig(**changes)
        assert settings.explored + settings.drawn == 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tasks": ["list"]}, "lists"),
        ({"variants": []}, "variants is empty"),
        ({"seeds": [-1]}, "none negative"),
        ({"programs": 0}, "programs=0"),
    ],
)
def test_settings_are_checked(settings, words):
    with pytest.raises(ValueError, match=words):
        MAPOBenchConfig(**settings)
