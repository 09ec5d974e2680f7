"""The page in the browser, driven as a person does: in a real browser, by its keys and its text.

Needs Chromium and its driver (Debian: chromium, chromium-driver).
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import viser
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from grasp_demos.reader import read_dataset
from grasp_demos.teleop import browser
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


def test_what_is_shown_and_asked_without_a_page():
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
    with browser.BrowserOperator(PageConfig(port=0), ActionScale()) as operator:
        operator.show(status)
        assert "Episode 3: press start, or just move" in operator._text.content
        assert "last: failure (time ran out)" in operator._text.content
        intent = operator.poll(info["state"])
        assert not intent.present  # no page is open, so nobody is there
        assert not intent.acting
        assert operator.address.startswith("http://127.0.0.1:")
        # Nobody gets in past the gate.
        inner = operator.server.get_port()
        with pytest.raises(InvalidStatus, match="403"):
            connect(f"ws://127.0.0.1:{inner}", subprotocols=[Subprotocol(f"viser-v{viser.__version__}")])
    env.close()


@pytest.fixture
def watched(monkeypatch):
    """A page's operator that believes somebody to be there, without a server."""
    operator = browser.BrowserOperator(PageConfig(port=0), ActionScale())
    operator.server = SimpleNamespace(get_clients=lambda: {0: object()})  # type: ignore[assignment]
    operator._speed = SimpleNamespace(value=0.6)  # type: ignore[assignment]
    return operator


@pytest.fixture
def state():
    env = registry.make("pybullet-lift", seed=0)
    yield env.reset(seed=1)[1]["state"]
    env.close()


def drag(operator, state, way, phase="update") -> None:
    position = state.tcp_position + np.asarray(way)
    target = SimpleNamespace(position=position, wxyz=np.array([1.0, 0.0, 0.0, 0.0]))
    asyncio.run(operator._drag(SimpleNamespace(phase=phase, target=target)))


def test_the_arm_follows_the_handle_only_while_it_is_held(watched, state):
    drag(watched, state, [0.1, 0.0, 0.0], "start")
    drag(watched, state, [0.3, 0.0, 0.0])
    intent = watched.poll(state)
    assert intent.motion[0] == pytest.approx(0.6)
    assert intent.acting
    drag(watched, state, [0.3, 0.0, 0.0], "end")
    assert not watched.poll(state).motion.any()
    for end in (lambda: asyncio.run(watched._left(None)), lambda: watched.begin(closed=False)):
        drag(watched, state, [0.3, 0.0, 0.0])
        watched._press(1, 1)
        watched._say("start")
        end()
        intent = watched.poll(state)
        assert not intent.motion.any()
        assert not intent.acting
        assert intent.command == ""


def test_while_nobody_is_there_what_was_asked_is_forgotten(watched, state):
    drag(watched, state, [0.3, 0.0, 0.0])
    watched._say("start")
    there, watched.server.get_clients = watched.server.get_clients, dict
    assert not watched.poll(state).present
    watched.server.get_clients = there
    intent = watched.poll(state)
    assert intent.present
    assert not intent.motion.any()
    assert intent.command == ""


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e308, -1e3])
def test_absurd_numbers_from_a_page_move_nothing(watched, state, number):
    drag(watched, state, [number, 0.0, 0.0])
    assert not watched.poll(state).motion.any()
    watched._speed.value = number
    watched._press(0, 1)
    motion = watched.poll(state).motion
    assert 0.1 <= motion[0] <= 1.0
    watched._speed.value = "fast"
    assert watched.poll(state).motion[0] == pytest.approx(0.1)


def test_of_several_commands_the_most_urgent_counts_and_nothing_is_queued(watched, state):
    for command in ["start"] * 200 + ["take"] * 400 + ["success", "quit", "start"]:
        watched._say(command)
    assert watched.poll(state).command == "quit"
    assert watched.poll(state).command == ""


def test_a_pilot_that_nobody_offers_is_one_clear_line():
    with pytest.raises(UserError, match=r"no installed package offers the pilot 'nobody'"):
        load_pilot("nobody", "", "servo", ActionScale())
