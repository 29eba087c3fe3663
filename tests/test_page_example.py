"""examples/clients/page: a page of one's own calls the agent with the token service's token."""

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from livekit_personaplex.demo.livekit_server import LiveKitCredentials
from livekit_personaplex.demo.process import LoggedProcess
from livekit_personaplex.demo.programs import child_environment
from livekit_personaplex.web.server import LIVEKIT_CLIENT
from tests.rooms.page import CHROMIUM, IN_CHROMIUM, chromium_flags
from tests.rooms.worker import AGENT, PROJECT, run_worker

playwright_api = pytest.importorskip("playwright.sync_api")

pytestmark = IN_CHROMIUM
CALL = "#login button:not([type])"


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def static_server(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://localhost:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def token_service(livekit: LiveKitCredentials, origin: str) -> Iterator[str]:
    environment = child_environment(
        {
            "LIVEKIT_URL": livekit.url,
            "LIVEKIT_API_KEY": livekit.api_key,
            "LIVEKIT_API_SECRET": livekit.api_secret,
            "CALLERS": '{"a-long-secret": "alice"}',
            "ORIGINS": origin,
            "LIBRARY_VOICE": "TINY0",
            "PORT": "0",
        }
    )
    program = [sys.executable, "-u", str(PROJECT / "examples" / "token_service.py")]
    with LoggedProcess("token service", program, environment=environment) as process:
        line = process.wait_for("http://", timeout_s=30.0)
        yield next(word for word in line.split() if word.startswith("http://"))


@pytest.fixture(scope="module")
def page_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The example's folder as `npm install livekit-client` leaves it, served on loopback."""
    folder = tmp_path_factory.mktemp("page") / "page"
    shutil.copytree(PROJECT / "examples" / "clients" / "page", folder)
    library = folder / "node_modules" / "livekit-client" / "dist"
    library.mkdir(parents=True)
    shutil.copy(LIVEKIT_CLIENT, library)
    with static_server(folder) as url:
        yield url


def test_a_caller_on_a_page_of_ones_own_hears_and_reads_the_agent(
    livekit: LiveKitCredentials, page_url: str, tmp_path: Path
) -> None:
    with (
        token_service(livekit, page_url) as service,
        run_worker(livekit, tmp_path, slots=1, agent=AGENT),
        playwright_api.sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=chromium_flags())
        page = browser.new_page()
        page.set_default_timeout(30_000)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(page_url)
        page.fill("#service", service)
        page.fill("#agent", "library")
        page.fill("#secret", "wrong")
        page.click(CALL)
        page.wait_for_selector("#state:has-text('who are you?')")
        page.fill("#secret", "a-long-secret")
        page.click(CALL)
        page.wait_for_selector("#words p:has-text('Agent: ')")
        assert page.evaluate("document.querySelector('audio:not([id])').currentTime") > 0
        page.wait_for_selector("#state:has-text('The agent is')")
        page.click("#leave")
        page.wait_for_selector("#state:has-text('You left.')")
        assert page.query_selector("audio:not([id])") is None
        assert not page.is_disabled(CALL)
        assert errors == []
        browser.close()
