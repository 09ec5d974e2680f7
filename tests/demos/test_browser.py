"""The page in the browser, driven as a person does: in a real browser, by its keys and its text.

Needs Chromium and its driver (Debian: chromium, chromium-driver).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from grasp_demos.reader import read_dataset
from grasp_demos.teleop.operator import Status
from grasp_demos.teleop.sources import PageConfig, load_pilot
from grasp_demos.validate import require_valid
from grasp_sim import registry
from grasp_sim.contract import ActionScale
from grasp_sim.errors import UserError

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
SECONDS = 240.0
"""Until a page that does nothing is given up."""
NUDGE_MM = 0.15 * 20 * 0.3 * 12.5
"""mm that a key moves the tool at half of the usual speed: 3 steps of 30 % of 12.5 mm."""


@pytest.fixture
def chromium() -> Iterator:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("Chromium and its driver are not installed (Debian: chromium chromium-driver)")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        *("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync"),
        *("disable-background-networking", "disable-component-update", "enable-unsafe-swiftshader"),
        "window-size=700,500",
    ):
        options.add_argument(f"--{argument}")
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


class Page:
    """What a person sees on the page, and the keys that are pressed there."""

    def __init__(self, driver, address: str) -> None:
        self._driver = driver
        driver.get(address)

    def text(self) -> str:
        """All of it."""
        return self._driver.execute_script("return document.body ? document.body.innerText : ''")

    def wait(self, found: Callable[[str], object]) -> str:
        """Read until `found` is true of the text."""
        end = time.monotonic() + SECONDS
        while not found(text := self.text()):
            assert time.monotonic() < end, f"the page shows:\n{text}"
            time.sleep(0.2)
        return text

    def press(self, key: str, times: int = 1) -> None:
        """One after the other, each long enough to be a nudge of its own."""
        from selenium.webdriver.common.action_chains import ActionChains

        chain = ActionChains(self._driver)
        for _ in range(times):
            chain = chain.send_keys(key).pause(0.2)
        chain.perform()

    def distance(self) -> tuple[int, int, int]:
        """From the tool to the object, in mm."""
        pattern = re.compile(r"object from the tool: x ([+-]\d+) y ([+-]\d+) z ([+-]\d+) mm")
        found = pattern.search(self.wait(pattern.search))
        assert found is not None
        return int(found[1]), int(found[2]), int(found[3])


@pytest.mark.slow
def test_a_real_grasp_through_the_page(chromium, tmp_path):
    out = tmp_path / "demos"
    command = [sys.executable, "-m", "grasp_demos.record", "source=browser", "episodes=1", "page.port=0"]
    command += [f"out={out}", "env.name=pybullet-lift", "time_limit=600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as recorder:
        try:
            assert recorder.stdout is not None
            said = recorder.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/", said)
            assert found, said
            grasp(Page(chromium, found[0]), recorder)
            assert recorder.wait(timeout=60) == 0
            assert "holds 1 of 1 demonstrations, 1 of them new" in recorder.stdout.read()
        finally:
            recorder.kill()
    (episode,) = read_dataset(out)
    require_valid([episode])
    assert episode.is_demonstration
    assert episode.metadata.source == "browser"


def grasp(page: Page, recorder: subprocess.Popen) -> None:
    """Look where the object is and press keys, until the recorder has what it wants."""
    page.wait(lambda text: "press start" in text)
    page.press("z")  # slower
    page.press("b")
    page.wait(lambda text: "Recording episode 1" in text)
    end = time.monotonic() + SECONDS
    closed = False
    while recorder.poll() is None:
        assert time.monotonic() < end, page.text()
        if closed:
            page.press("u", 5)
            continue
        x, y, z = page.distance()
        moves = [("i" if x > 0 else "k", x), ("j" if y > 0 else "l", y)]
        moves = [(key, round(abs(way) / NUDGE_MM)) for key, way in moves if abs(way) > 6]
        if not moves and z < -5:
            moves = [("o", max(1, round(-z / NUDGE_MM)))]
        for key, times in moves:
            page.press(key, times)
        if not moves:
            page.press("g")
            time.sleep(1.5)
            closed = True


def test_what_is_shown_and_asked_without_a_page(tmp_path):
    from grasp_demos.teleop.browser import BrowserOperator

    env = registry.make("pybullet-objects", seed=0)
    _, info = env.reset(seed=1)
    status = Status(
        phase="ready",
        state=info["state"],
        snapshot=env.snapshot(),
        episode=3,
        step=0,
        horizon=100,
        recorded=1,
        wanted=5,
        slips=0,
        actor="person",
        grasped=False,
        late=0,
        verdict="failure (time ran out)",
    )
    with BrowserOperator(PageConfig(port=0), ActionScale()) as operator:
        operator.show(status)
        assert "Episode 3: press start, or just move" in operator._text.content
        assert "last: failure (time ran out)" in operator._text.content
        intent = operator.poll(info["state"])
        assert not intent.present  # no page is open, so nobody is there
        assert not intent.acting
        operator._press(1, -1)
        operator._say("start")
        intent = operator.poll(info["state"])
        np.testing.assert_allclose(intent.motion, [0, -0.6, 0, 0])
        assert intent.command == "start"
        # The handle was dragged 0.1 m forward: the tool goes there, and lets go once it is there.
        operator._goal = info["state"].tcp_position + np.array([0.1, 0.0, 0.0]), 0.0
        intent = operator.poll(info["state"])
        assert intent.motion[0] > 0.0
        assert np.abs(intent.motion).max() <= 0.6 + 1e-9
        operator.begin(closed=False)
        assert not operator.poll(info["state"]).motion.any()
        assert operator.address.startswith("http://127.0.0.1:")
    env.close()


def test_a_pilot_that_nobody_offers_is_one_clear_line():
    with pytest.raises(UserError, match=r"no installed package offers the pilot 'nobody'"):
        load_pilot("nobody", "", "servo", ActionScale())
