"""What every command does alike: `key=value` settings, a teaching `--help`, and errors of one line.

A command is a dataclass of settings and a function. The dataclass is the schema: it is registered in Hydra's
ConfigStore, the overrides are composed onto it, and the result is converted once to plain dataclasses, so
`__post_init__` sees the final values. A setting is explained by the string literal below its field or by
`field(metadata={"help": ...})`.

    @dataclass
    class GreetConfig:
        name: str = "you"
        \"\"\"Who is greeted.\"\"\"

    def main() -> int:
        return run_command(GreetConfig, greet, "Greet somebody.\\n\\nExample: greet name=Ada")

The compose API is used instead of `hydra.main`: it changes no working directory, writes no output folder and
leaves logging alone, so relative paths resolve from where the command was started.
"""

from __future__ import annotations

import dataclasses
import difflib
import errno
import importlib
import io
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from grasp_sim.cli_help import Setting, describe, list_settings, nested_class
from grasp_sim.contract import ContractError
from grasp_sim.errors import UserError

T = TypeVar("T")

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130


def run_command(
    config_class: type[T],
    main: Callable[[T], int | None],
    help_text: str,
    *,
    argv: Sequence[str] | None = None,
    config_dir: Path | None = None,
    program: str | None = None,
    resumes: bool = False,
) -> int:
    """Run `main` on the settings given on the command line and return the exit code.

    Args:
        config_class: a dataclass, nested ones allowed; the schema and the defaults.
        main: the command; None counts as exit code 0.
        help_text: what the command is for, with examples; printed above the list of settings by `--help`.
        argv: arguments without the program's name; `sys.argv` by default.
        config_dir: folder of YAML presets, one sub-folder a group: `memory=large` merges `memory/large.yaml`
            into the nested dataclass `memory`.
        program: the command's name in messages; from `sys.argv` by default.
        resumes: the same command again goes on where it was stopped; Ctrl-C then says so.

    A `UserError`, a `ContractError`, a bad setting or a failing file system becomes one line on stderr and
    exit code 2, Ctrl-C exit code 130. Any other exception is a fault of the program and keeps its traceback.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    program = program or Path(sys.argv[0]).stem
    try:
        _say_anything()
        code = _run(config_class, main, help_text, arguments, config_dir, program)
        sys.stdout.flush()  # Whether it can be written is known only then.
        return code
    except (UserError, ContractError) as error:
        return _report(program, error)
    except BrokenPipeError:
        sys.stderr.close()  # The reader of our output (`| head`) has left: nobody to tell.
        return EXIT_USER_ERROR
    except OSError as error:
        return _report(program, f"{error.strerror or error}{_place_of(error)}.")
    except KeyboardInterrupt:
        hint = "; the same command goes on where it stopped" if resumes else ""
        print(f"{program}: stopped by the keyboard{hint}.", file=sys.stderr)
        return EXIT_INTERRUPTED


def _run(
    config_class: type[T],
    main: Callable[[T], int | None],
    help_text: str,
    arguments: list[str],
    config_dir: Path | None,
    program: str,
) -> int:
    if "--help" in arguments or "-h" in arguments:
        print(describe(config_class, help_text, program, presets(config_dir)))
        return 0
    config = parse_config(config_class, [a for a in arguments if a != "--print-config"], config_dir)
    if "--print-config" in arguments:
        print(OmegaConf.to_yaml(OmegaConf.structured(config)), end="")
        return 0
    return main(config) or 0


def run_named(
    program: str,
    kind: str,
    table: Mapping[str, tuple[str, str]],
    arguments: Sequence[str],
    *,
    usage: str,
    closing: str,
) -> int:
    """Run what the first word names, as in `grasp-bench sim seed=1`, and return its exit code.

    Args:
        program: the command's name.
        kind: what the words name, for messages, such as "benchmark".
        table: names, each with `module:function`, imported when it is asked for, of a function
            `(arguments) -> exit code`; and what it does, in one line.
        arguments: the words after the program's name.
        usage: what may follow the program's name.
        closing: printed below the list by `--help`.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        listing = "\n".join(f"  {name:10} {text}" for name, (_, text) in table.items())
        print(f"Usage: {program} {usage}\n\n{listing}\n\n{closing}")
        return 0 if arguments else EXIT_USER_ERROR
    name, *rest = arguments
    if name not in table:
        hint = _nearest(name, list(table))
        print(f"{program}: there is no {kind} '{name}'.{hint} Choices: {', '.join(table)}.", file=sys.stderr)
        return EXIT_USER_ERROR
    module, function = table[name][0].split(":")
    return getattr(importlib.import_module(module), function)(rest)


def parse_config(config_class: type[T], overrides: Sequence[str], config_dir: Path | None = None) -> T:
    """Compose `key=value` overrides onto the dataclass; raises UserError naming the setting at fault."""
    settings = list_settings(config_class)
    groups = presets(config_dir)
    checked = [_check_override(text, config_class, settings, groups) for text in overrides]
    name = f"{config_class.__module__}.{config_class.__qualname__}"
    ConfigStore.instance().store(name=name, node=config_class)
    try:
        with _initialized(config_dir):
            config = hydra.compose(config_name=name, overrides=checked)
        missing = sorted(OmegaConf.missing_keys(config))
        if missing:
            raise UserError(_missing_message(missing, settings))
        return OmegaConf.to_object(config)  # type: ignore[return-value]
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(_composition_message(error)) from error
    except ValueError as error:  # from a __post_init__, which has quoted the values it received
        raise UserError(str(error)) from error


def presets(config_dir: Path | None) -> dict[str, list[str]]:
    """Names of the YAML presets in `config_dir` by group."""
    if config_dir is None or not config_dir.is_dir():
        return {}
    folders = sorted(p for p in config_dir.iterdir() if p.is_dir())
    return {f.name: names for f in folders if (names := sorted(p.stem for p in f.glob("*.yaml")))}


def overrides(values: Mapping[str, object], prefix: str = "") -> list[str]:
    """`key=value` settings for another command, which reads each value back unchanged, whatever it holds."""

    def written(value: object) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str | Path):
            return "'" + str(value).replace("'", "\\'") + "'"
        return str(value)

    settings = []
    for key, value in values.items():
        if dataclasses.is_dataclass(value):
            settings += overrides(vars(value), f"{prefix}{key}.")
        else:
            settings.append(f"{prefix}{key}={written(value)}")
    return settings


def require_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """For `__post_init__`: raise ValueError, naming the choices, unless `value` is one of them."""
    known = list(choices)
    if value not in known:
        raise ValueError(f"{name}={value} is not known.{_nearest(value, known)} Choices: {', '.join(known)}.")


def require_at_most(settings: object, limits: Mapping[str, float], prefix: str = "") -> None:
    """For `__post_init__`: raise ValueError naming a field that is above its limit."""
    for name, limit in limits.items():
        if getattr(settings, name) > limit:
            raise ValueError(f"{prefix}{name}={getattr(settings, name)} is more than {limit}.")


def require_at_least(settings: object, limits: Mapping[str, float], prefix: str = "") -> None:
    """For `__post_init__`: raise ValueError naming a field that is below its limit."""
    for name, limit in limits.items():
        if getattr(settings, name) < limit:
            raise ValueError(f"{prefix}{name}={getattr(settings, name)} must be at least {limit}.")


def require_path(name: str, value: str) -> None:
    """For `__post_init__`: raise ValueError for an empty path, which would mean the current folder."""
    if not value.strip():
        raise ValueError(f"{name} is empty: name a file or folder, as in {name}=runs/lift.")


def _check_override(
    text: str, config_class: type, settings: list[Setting], groups: dict[str, list[str]]
) -> str:
    """Return the override as Hydra takes it, or raise UserError. `settings` only serve the messages."""
    if text.startswith("-") or "=" not in text:
        example = next((s.key for s in settings), "key")
        raise UserError(
            f"'{text}' is not a setting: settings are written key=value, such as {example}=..., without "
            "dashes or spaces; --help lists them, --print-config shows what would run."
        )
    try:
        override: Override = OverridesParser.create().parse_override(text)
    except HydraException as error:
        key, _, value = text.partition("=")
        quoted = f"'{value}'"
        if value.startswith("[") and value.endswith("]"):  # in a list each element is quoted by itself
            quoted = "[" + ",".join(f"'{part.strip()}'" for part in value[1:-1].split(",")) + "]"
        raise UserError(
            f"the value of '{text}' cannot be read; put it in quotes: \"{key}={quoted}\""
        ) from error
    key = override.key_or_group
    if override.is_sweep_override():
        raise UserError(f"'{text}' gives several values; one run takes one (a list is written {key}=[a,b]).")
    if override.is_add() or override.is_delete():
        raise UserError(f"'{text}': settings can be changed, not added or removed; write {key}=value.")
    if key in groups and nested_class(config_class, key) is not None:
        option = str(override.value())
        if option not in groups[key]:
            raise UserError(
                f"there is no preset {key}={option}.{_nearest(option, groups[key])} "
                f"Presets: {', '.join(groups[key])}."
            )
        return f"+{text}"
    _check_key(key, config_class, settings)
    return "++" + text if _check_value(override, config_class, settings) else text


def _check_key(key: str, config_class: type, settings: list[Setting]) -> None:
    """Raise UserError unless the dotted key leads to a setting of the dataclass."""
    node: type = config_class
    parts = key.split(".")
    for depth, part in enumerate(parts):
        names = [f.name for f in dataclasses.fields(node) if f.name != "defaults"]
        if part not in names:
            prefix = "".join(p + "." for p in parts[:depth])
            elsewhere = [s.key for s in settings if s.key.rpartition(".")[2] == parts[-1]]
            hint = f" Did you mean '{elsewhere[0]}'?" if elsewhere else _nearest(part, names, prefix)
            listed = ", ".join(prefix + n for n in names)
            raise UserError(f"there is no setting '{key}'.{hint} Settings: {listed}. --help explains them.")
        inner = nested_class(node, part)
        if inner is None:
            return  # A leaf, or a dictionary or list whose entries OmegaConf checks.
        node = inner
    inside = ", ".join(s.key for s in settings if s.key.startswith(key + "."))
    raise UserError(f"'{key}' is a group of settings, not a value; set one of: {inside}.")


def _check_value(override: Override, config_class: type, settings: list[Setting]) -> bool:
    """Raise UserError unless the value has the setting's type; true where it adds to a dictionary."""
    key = override.key_or_group
    setting = next((s for s in settings if key == s.key or key.startswith(s.key + ".")), None)
    into_dictionary = setting is not None and setting.type_name.startswith("dict")
    try:
        config = OmegaConf.structured(config_class)
        OmegaConf.update(config, key, override.value(), force_add=into_dictionary)
    except OmegaConfBaseException as error:
        given = override.get_value_string()
        if setting is None:
            raise UserError(f"{key}={given}: {str(error).splitlines()[0]}") from error
        raise UserError(
            f"{key}={given} does not fit: {setting.key} takes {setting.type_name} "
            f"(default {setting.default})."
        ) from error
    return into_dictionary


def _nearest(word: str, known: list[str], prefix: str = "") -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f" Did you mean '{prefix}{close[0]}'?" if close else ""


def _missing_message(missing: list[str], settings: list[Setting]) -> str:
    explained = {s.key: s.help.split(". ")[0].rstrip(".") for s in settings}
    wanted = "; ".join(f"{key}=... ({explained.get(key) or 'no default'})" for key in missing)
    return f"these settings have no default and must be given: {wanted}."


def _composition_message(error: BaseException) -> str:
    """One line out of Hydra's and OmegaConf's several; overrides were checked, so a preset is to blame."""
    source, outermost = error, " ".join(str(error).split())
    cause: BaseException | None = error
    while cause is not None:  # The innermost error with a full key is the one that says what is wrong.
        source = cause if getattr(cause, "full_key", None) else source
        cause = cause.__cause__ or cause.__context__
    line = next((text.strip() for text in str(source).splitlines() if text.strip()), "")
    where = outermost.split(":")[0] + ": " if outermost.startswith("In '") and source is not error else ""
    key = getattr(source, "full_key", None)
    return f"{where}{key}: {line}" if key else outermost


def _initialized(config_dir: Path | None) -> Any:
    if config_dir is None:
        return hydra.initialize(version_base="1.3", config_path=None)
    return hydra.initialize_config_dir(version_base="1.3", config_dir=str(config_dir.resolve()))


def _say_anything() -> None:
    """Let characters that the terminal's encoding lacks appear as escapes instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _place_of(error: OSError) -> str:
    """Where it happened, to follow the error's text; empty where nobody knows."""
    if error.filename:
        return f": '{error.filename}'"
    try:
        os.getcwd()
    except OSError:
        return ": the current folder, which was deleted; change into another"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):  # Where a file is full, its writer names it.
        return ", where the output of the command or a temporary file goes"
    return ""


def _report(program: str, error: object) -> int:
    say(f"{program}: {' '.join(str(error).split())}")
    return EXIT_USER_ERROR


def say(line: str) -> None:
    """One line on stderr after all that was printed; nothing where nobody can read it any more."""
    _flush(sys.stdout)
    with suppress(OSError):
        print(line, file=sys.stderr)
    _flush(sys.stderr)


def _flush(stream: Any) -> None:
    if stream is None:  # closed before the command started
        return
    try:
        stream.flush()
    except OSError:  # Such as a terminal that was closed: what waits there would fail again at the exit.
        unread = os.open(os.devnull, os.O_WRONLY)
        os.dup2(unread, stream.fileno())
        os.close(unread)
