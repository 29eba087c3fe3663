"""The page, in a real Chromium with a recorded voice, on a real server, worker and engine."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

from livekit_personaplex.demo.livekit_server import (
    LiveKitCredentials,
    LocalLiveKitServer,
    find_livekit_server,
)
from tests.rooms.page import (
    AXE,
    CHROMIUM,
    IN_CHROMIUM,
    PageStack,
    chromium_flags,
    run_page,
    serving_page,
)
from tests.rooms.worker import PROJECT

playwright_api = pytest.importorskip("playwright.sync_api")

pytestmark = IN_CHROMIUM

LIVE = "body[data-phase=live]"
IDLE = "body[data-phase=idle]"
HEARD = 0.3
PHONE = {"width": 360, "height": 740}
MAX_STEP_MS = 20_000

OpenPage = Callable[..., Any]


@pytest.fixture(scope="module")
def stack(
    livekit: LiveKitCredentials, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PageStack]:
    with run_page(livekit, tmp_path_factory.mktemp("page"), agent_timeout_s=8.0) as running:
        yield running


@pytest.fixture(scope="module")
def playwright() -> Iterator[Any]:
    with playwright_api.sync_playwright() as running:
        yield running


@contextmanager
def chromium(playwright: Any, **microphone: Any) -> Iterator[Any]:
    browser = playwright.chromium.launch(
        executable_path=CHROMIUM, args=chromium_flags(**microphone)
    )
    try:
        yield browser
    finally:
        browser.close()


@pytest.fixture(scope="module")
def browser(playwright: Any) -> Iterator[Any]:
    with chromium(playwright) as running:
        yield running


def open_page(browser: Any, url: str, **options: Any) -> Any:
    """A fresh page, whose script errors end the test that closes it."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(MAX_STEP_MS)
    page.script_errors = []
    page.on("pageerror", lambda error: page.script_errors.append(str(error)))
    page.goto(url)
    page.wait_for_selector("#voice option", state="attached")
    return page


@pytest.fixture
def page(browser: Any, stack: PageStack) -> Iterator[Any]:
    page = open_page(browser, stack.url)
    yield page
    page.context.close()
    assert page.script_errors == []


def join(page: Any) -> None:
    page.click("#join")
    page.wait_for_selector(LIVE)


def until(page: Any, expression: str) -> None:
    """Wait for an expression; Playwright's own way would need `eval`, which the page forbids."""
    deadline_s = time.monotonic() + MAX_STEP_MS / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < deadline_s, f"waited in vain for {expression}"
        page.wait_for_timeout(50)


def wait_for_level(page: Any, lane: str, *, is_heard: bool) -> None:
    sign = ">" if is_heard else "<"
    until(page, f"document.querySelector('#{lane}').dataset.level {sign} {HEARD}")


def problem(page: Any) -> str:
    page.wait_for_selector("#problem:not([hidden])")
    assert page.get_attribute("body", "data-phase") == "idle"
    return str(page.get_attribute("#problem", "data-cause"))


def test_a_caller_joins_hears_reads_mutes_and_leaves(page: Any) -> None:
    join(page)
    assert page.inner_text("#connection") == "Connected"
    wait_for_level(page, "agent-lane", is_heard=True)
    wait_for_level(page, "user-lane", is_heard=True)
    until(page, "document.querySelector('#words li.agent span')?.textContent.length > 8")
    until(page, "/^about \\d+ ms$/.test(document.querySelector('#delay').textContent)")
    assert page.inner_text("#agent-state") in {"Speaking", "Listening"}
    page.click("#mute")
    assert page.get_attribute("#mute", "aria-pressed") == "true"
    assert page.inner_text("#user-state") == "Muted"
    until(page, "document.querySelector('#user-lane').dataset.level == 0")
    page.wait_for_timeout(3_000)  # longer than the recording's own pauses
    assert float(page.get_attribute("#user-lane", "data-level")) == 0
    page.click("#mute")
    wait_for_level(page, "user-lane", is_heard=True)
    page.click("#leave")
    page.wait_for_selector(IDLE)
    assert page.is_hidden("#problem")
    assert page.inner_text("#connection") == "Not connected"
    assert page.inner_text("#words li.agent span")  # what was said stays to be read


@pytest.mark.skipif(find_spec("moonshine_voice") is None, reason="moonshine-voice is not installed")
def test_a_caller_reads_their_own_words_too(page: Any) -> None:
    assert page.inner_text("#caller-words")
    length = "document.querySelector('#persona-tokens').textContent"
    until(page, f"/^\\d+ of 200 tokens$/.test({length})")
    join(page)
    until(
        page,
        "['opening', 'hours', 'today'].filter(word => [...document.querySelectorAll("
        "'#words li.user span')].some(one => one.textContent.includes(word))).length >= 2",
    )
    assert page.inner_text("#words li.user b") == "You"
    until(page, "/opening|hours|today/.test(document.querySelector('#said').textContent)")
    page.click("#leave")


def test_another_voice_and_seed_are_taken_by_rejoining(page: Any, stack: PageStack) -> None:
    requests: list[dict[str, Any]] = []
    page.on(
        "request",
        lambda request: (
            requests.append(request.post_data_json) if request.url.endswith("/api/calls") else None
        ),
    )
    with page.expect_response("**/api/calls") as made:
        join(page)
    room = {"room": made.value.json()["room"]}
    again = page.request.post(f"{stack.url}api/calls/again", data=room)
    assert again.json() == {"is_called": False}, "one agent is enough"
    assert page.is_hidden("#rejoin")
    voices = page.eval_on_selector_all("#voice option", "all => all.map(one => one.value)")
    assert voices[:2] == ["TINY0", "TINY0.wav"]
    page.select_option("#voice", "TINY0.wav")
    page.click(".advanced summary")
    page.fill("#seed", "7")
    page.select_option("#phrasing", index=1)
    page.fill("#greeting", "Hello.")
    page.select_option("#first-speaker", "agent")
    page.click("#rejoin")
    page.wait_for_selector("body:not([data-phase=live])")
    page.wait_for_selector(LIVE)
    wait_for_level(page, "agent-lane", is_heard=True)
    assert page.is_hidden("#rejoin")
    first, second = requests
    assert (first["voice"], second["voice"], second["seed"]) == ("TINY0", "TINY0.wav", 7)
    assert (second["greeting"], second["first_speaker"]) == ("Hello.", "agent")
    assert second["persona"].startswith("You enjoy having a good conversation.")
    page.click("#leave")


def test_whoever_comes_when_all_slots_are_taken_waits_for_one_and_is_told_so(
    browser: Any, stack: PageStack, page: Any
) -> None:
    others = [open_page(browser, stack.url) for _ in range(2)]
    try:
        for other in others:
            join(other)
        page.click("#join")
        page.wait_for_selector("body[data-phase=waiting]")
        assert page.inner_text("#agent-state") == "Being called"
        assert problem(page) == "all-busy"
        for other in others:
            assert other.get_attribute("body", "data-phase") == "live"
        page.click("#join")
        page.wait_for_selector("body[data-phase=waiting]")
        others[0].click("#leave")
        page.wait_for_selector(LIVE)  # whoever waits gets the slot that becomes free
    finally:
        for other in others:
            other.context.close()


def test_it_works_by_keyboard_alone_and_focus_is_never_lost(page: Any) -> None:
    for _ in range(2):  # the link past the call, then the call's button
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "join"
    page.keyboard.press("Enter")
    page.wait_for_selector(LIVE)
    until(page, "document.activeElement.id === 'mute'")
    page.keyboard.press("Space")
    assert page.get_attribute("#mute", "aria-pressed") == "true"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "leave"
    page.keyboard.press("Enter")
    page.wait_for_selector(IDLE)
    assert page.evaluate("document.activeElement.id") == "join"


def open_with_everything_shown(browser: Any, url: str, **options: Any) -> Any:
    """The page on a phone, with each part that some state of a call hides."""
    page = open_page(browser, url, viewport=PHONE, **options)
    page.click(".advanced summary")
    page.evaluate("document.querySelectorAll('[hidden]').forEach(one => (one.hidden = false))")
    page.evaluate("document.querySelector('#problem-title').textContent = 'A problem'")
    return page


def test_it_fits_a_phone(browser: Any, stack: PageStack) -> None:
    page = open_with_everything_shown(browser, stack.url)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.context.close()


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed; make test installs it")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_passes_the_accessibility_rules(browser: Any, stack: PageStack, scheme: str) -> None:
    page = open_with_everything_shown(browser, stack.url, color_scheme=scheme)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []
    page.context.close()


def test_a_refused_microphone_is_explained(playwright: Any, stack: PageStack) -> None:
    with chromium(playwright, is_allowed=False) as browser:
        page = open_page(browser, stack.url, permissions=[])
        page.click("#join")
        assert problem(page) == "permission-refused"
        assert "Allow it" in page.inner_text("#problem")


def test_a_missing_microphone_is_explained(playwright: Any, stack: PageStack) -> None:
    with chromium(playwright, microphone=None) as browser:
        page = open_page(browser, stack.url, permissions=["microphone"])
        page.click("#join")
        assert problem(page) == "no-microphone"


def test_settings_that_an_agent_would_refuse_are_refused_with_its_own_words(page: Any) -> None:
    page.evaluate("document.querySelector('#seed').removeAttribute('pattern')")
    page.click(".advanced summary")
    page.fill("#seed", "-1")
    page.click("#join")
    assert problem(page) == "refused-settings"
    assert "seed must lie in" in page.inner_text("#problem-text")


def test_a_lost_connection_is_told_and_comes_back_and_a_server_that_is_gone_ends_the_call(
    browser: Any, stack: PageStack
) -> None:
    with LocalLiveKitServer(find_livekit_server(PROJECT)) as server:
        setup = replace(
            stack.setup,
            livekit=server.credentials,
            agent_timeout_s=60.0,
            reconnect_timeout_s=3.0,
        )
        with serving_page(setup) as url:
            page = open_page(browser, url)
            page.click("#join")
            page.wait_for_selector("body[data-phase=waiting]")
            os.kill(server.process.pid, signal.SIGSTOP)
            page.wait_for_selector("#connection[data-state=trying]")
            os.kill(server.process.pid, signal.SIGCONT)
            page.wait_for_selector("#connection[data-state=on]")
            assert "back" in page.inner_text("#banner")
            server.process.kill_group()
            page.wait_for_selector("#connection[data-state=trying]")
            assert problem(page) == "livekit-gone"
        page.click("#join")
        assert problem(page) == "page-server-gone"
        page.context.close()


def test_an_agent_whose_engine_dies_leaves_and_the_page_says_so(
    page: Any, stack: PageStack
) -> None:
    join(page)
    stack.engine.kill_group()  # the last test of the module: nobody answers any more
    assert problem(page) == "agent-left"
    assert page.inner_text("#connection") == "Call ended"
