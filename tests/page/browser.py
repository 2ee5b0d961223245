"""Debian's Chromium, found or installed, and driven by Playwright, which downloads none of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Final

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import BrowserContext, Page

_FLAGS: Final = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--force-color-profile=srgb", "--hide-scrollbars",
)  # fmt: skip
_SECONDS: Final = 600
PHONE: Final = (390, 844)
DESK: Final = (1280, 800)


def chromium() -> str:
    """The path of a Chromium. Raises subprocess.SubprocessError or OSError where none can be had."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is not None:
        return found
    install = [
        "apt-get",
        "-qq",
        "install",
        "--yes",
        "--no-install-recommends",
        "chromium",
        "fonts-dejavu-core",
    ]
    for command in (["apt-get", "-qq", "update"], install):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(command, check=True, stdout=sys.stderr, timeout=_SECONDS, env=environment)
    return shutil.which("chromium") or "/usr/bin/chromium"


@contextlib.contextmanager
def window(*, size: tuple[int, int] = DESK, dark: bool = False) -> Iterator[BrowserContext]:
    """A Chromium with an empty profile; what goes wrong in its pages is told by `opened`."""
    with tempfile.TemporaryDirectory() as profile, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=chromium(),
            headless=True,
            args=[*_FLAGS],
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        try:
            yield context
        finally:
            context.close()


class Complaints(list[str]):
    """What the console of a page said: errors of scripts, and what the Content-Security-Policy refused."""


def opened(context: BrowserContext, address: str) -> tuple[Page, Complaints]:
    """A new page at an address, loaded, and what it complains about from then on."""
    page = context.new_page()
    complaints = Complaints()
    page.on(
        "console", lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address)
    return page, complaints
