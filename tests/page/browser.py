"""Debian's Chromium, found or installed, and driven by Playwright, which downloads none of its own.

`python -m tests.page.browser` installs it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect, sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

_FLAGS: Final = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--force-color-profile=srgb", "--hide-scrollbars",
)  # fmt: skip
_PACKAGES: Final = ("chromium", "fonts-dejavu-core")
_SECONDS: Final = 600
PHONE: Final = (390, 844)
DESK: Final = (1280, 800)
# On a busy machine a commit takes longer to be seen than Playwright's five seconds.
expect.set_options(timeout=30_000)


def chromium() -> str:
    """The path of a Chromium. Raises subprocess.SubprocessError or OSError where none can be had."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is not None:
        return found
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "-qq", "install", "--yes", "--no-install-recommends", *_PACKAGES]
    for command in (["apt-get", "-qq", "update"], install):
        subprocess.run(command, check=True, stdout=sys.stderr, timeout=_SECONDS, env=environment)
    return shutil.which("chromium") or "/usr/bin/chromium"


@contextlib.contextmanager
def run_browser() -> Iterator[Browser]:
    """A Chromium without a window. While it runs, the thread can run no other event loop: keep it to a module
    whose tests are no coroutines.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), headless=True, args=[*_FLAGS])
        with contextlib.closing(browser):
            yield browser


class Tab:
    """A page of a profile of its own, and what went wrong in it."""

    def __init__(self, browser: Browser, origin: str, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        """Errors of scripts, what the Content-Security-Policy refused, and what could not be loaded."""
        self.foreign: list[str] = []
        """Requests to other servers."""
        self._origin = origin
        page.on(
            "console", lambda said: self._complain(said.text) if said.type in {"error", "warning"} else None
        )
        page.on("pageerror", lambda error: self._complain(str(error)))
        page.on("request", lambda asked: self._note(asked.url))
        del browser

    def open(self, path: str) -> Page:
        """The page at a path, loaded and live."""
        self.page.goto(f"{self._origin}{path}")
        self.page.wait_for_selector("#connection.live")
        return self.page

    def violations(self) -> list[tuple[str, str]]:
        """What axe-core finds: (rule, the elements)."""
        found: list[dict[str, Any]] = Axe().run(self.page).response["violations"]
        return [(rule["id"], "; ".join(node["html"] for node in rule["nodes"])) for rule in found]

    def _complain(self, text: str) -> None:
        self.complaints.append(text)

    def _note(self, url: str) -> None:
        if not url.startswith((self._origin, "data:")):
            self.foreign.append(url)


@contextlib.contextmanager
def tab(
    browser: Browser, origin: str, *, size: tuple[int, int] = DESK, dark: bool = False, **more: Any
) -> Iterator[Tab]:
    """A tab whose page works and asks nobody else; `more` as Playwright's `new_context` has it."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
        **more,
    )
    with contextlib.closing(context):
        opened = Tab(browser, origin, context.new_page())
        yield opened
        assert opened.complaints == []
        assert opened.foreign == []


if __name__ == "__main__":
    chromium()
