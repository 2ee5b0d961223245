"""The page of a cluster in a real browser: what changes appears without a reload."""

from __future__ import annotations

import signal
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.cluster.fleets import wait_served
from tests.cluster.pages import page, token_of
from tests.cluster.patience import PATIENCE
from tests.cluster.tokens import sign_token
from tests.page.browser import PHONE, Tab, run_browser, tab
from tests.worlds.flags import flags

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.cluster.pages import PageProcess
    from tests.cluster.plane import Plane
    from tests.cluster.pods import PodProcess
    from tests.cluster.proxies import ProxyProcess
    from tests.cluster.spines import Spine

pytestmark = pytest.mark.timeout(240)
PATIENCE_MS = PATIENCE * 1000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with run_browser() as started:
        yield started


@pytest.fixture
def process(cluster: Plane, spine: Spine, delivering: ProxyProcess, tmp_path: Path) -> Iterator[PageProcess]:
    """A page that asks the test's proxy for its evaluators."""
    assert spine.name
    with page(cluster, tmp_path / "page", "--proxies", f"127.0.0.1:{delivering.management}") as started:
        yield started


def headers(token: str) -> dict[str, str]:
    """What a login proxy sends."""
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def opened(browser: Browser, process: PageProcess, spine: Spine) -> Iterator[Tab]:
    """A tab of somebody who may see the test's namespace."""
    with tab(browser, process.origin, extra_http_headers=headers(token_of(spine))) as shown:
        yield shown


def test_a_commit_and_a_laggard_appear_live(spine: Spine, fleet: list[PodProcess], opened: Tab) -> None:
    shown = opened.open(f"/ui/delivery?set={spine.name}/flags")
    shown.get_by_text("3 of 3 evaluators serve what it delivers").first.wait_for(timeout=PATIENCE_MS)
    assert not shown.locator(".laggards").count()
    fleet[0].send(signal.SIGSTOP)
    commit = spine.push("banner off", flags__json=flags(banner="off"))
    shown.get_by_text("2 of 3 evaluators serve what it delivers").first.wait_for(timeout=PATIENCE_MS)
    assert commit[:7] in shown.inner_text("main")
    laggard = shown.locator(".laggards li", has_text=f"{spine.name}/{fleet[0].name}")
    laggard.wait_for(timeout=PATIENCE_MS)
    fleet[0].send(signal.SIGCONT)
    laggard.wait_for(state="detached", timeout=PATIENCE_MS)
    wait_served(spine, "3/3")
    shown.get_by_text("3 of 3 evaluators serve what it delivers").first.wait_for(timeout=PATIENCE_MS)


@pytest.mark.long
def test_hostile_texts_of_a_commit_stay_texts(spine: Spine, opened: Tab) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    spine.wait_applied(spine.push(hostile, flags__json=flags(**{hostile: "on", "banner": "on"})))
    shown = opened.open(f"/ui/delivery?set={spine.name}/flags")
    shown.locator(".events", has_text=hostile).wait_for(timeout=PATIENCE_MS)
    for view in ("flags", "delivery", "pending"):
        opened.open(f"/ui/{view}?set={spine.name}/flags")
        assert not shown.locator("img[src=x]").count()


@pytest.mark.long
def test_what_is_held_waits_with_the_command_that_accepts_it(spine: Spine, opened: Tab) -> None:
    spine.patch("flagset", {"spec": {"pruneGuard": True}})
    commit = spine.push("remove banner", flags__json=flags(other="on"))
    spine.wait_reason("flagset", "PruneGuard")
    shown = opened.open("/ui/pending")
    command = (
        f"kubectl -n {spine.name} annotate flagset flags --overwrite flagstaff.dev/accept-revision=sha1:"
    )
    shown.get_by_text(f"{command}{commit}").wait_for(timeout=PATIENCE_MS)


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_and_nothing_is_wider_than_a_phone(
    browser: Browser, process: PageProcess, spine: Spine, *, dark: bool
) -> None:
    spine.patch("flagset", {"spec": {"pruneGuard": True}})
    spine.push("remove banner", flags__json=flags(other="on"))
    spine.wait_reason("flagset", "PruneGuard")
    sent = headers(token_of(spine))
    with tab(browser, process.origin, size=PHONE, dark=dark, extra_http_headers=sent) as opened:
        for view in ("delivery", f"delivery?set={spine.name}/flags", "pending"):
            shown = opened.open(f"/ui/{view}")
            shown.locator("main h2").first.wait_for(timeout=PATIENCE_MS)
            assert opened.violations() == [], view
            assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), view


@pytest.mark.long
def test_a_page_whose_token_expires_says_so_by_itself(
    cluster: Plane, spine: Spine, browser: Browser, process: PageProcess
) -> None:
    sent = headers(token_of(spine))
    with closing(browser.new_context(extra_http_headers=sent)) as context:
        shown = Tab(browser, process.origin, context.new_page()).open(f"/ui/delivery?set={spine.name}/flags")
        expired = sign_token(cluster, spine.name, "viewer", -3600)
        context.set_extra_http_headers(headers(expired))
        spine.push("banner off", flags__json=flags(banner="off"))
        shown.get_by_text("Your token has expired. Log in again").wait_for(timeout=PATIENCE_MS)
