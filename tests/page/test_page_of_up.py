"""The page of `flagstaff up` in a real browser."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from playwright.sync_api import expect

from tests.clients.up import up
from tests.page.browser import DESK, PHONE, run_browser, tab
from tests.page.shop import shop
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.page.shop import Shop

pytestmark = pytest.mark.timeout(300)
FLAG = "/ui/flag?key=new-checkout"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with run_browser() as browser:
        yield browser


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Shop]:
    with shop(tmp_path) as made:
        yield made


def test_the_page_opens_on_the_flags_with_rules_owners_and_changes(browser: Browser, served: Shop) -> None:
    with tab(browser, served.origin) as opened:
        page = opened.open("/ui")
        row = page.locator("tr", has_text="new-checkout")
        expect(row).to_contain_text("for users whose email ends with @example.com: on; else on for")
        expect(row).to_contain_text("The checkout of the new shop")
        expect(row.locator(".owner")).to_have_text("web")
        expect(row).to_contain_text("Describe the new checkout (#12)")
        expect(row).to_contain_text("Grace")
        expect(page.locator("tr", has_text="legacy-cart")).to_contain_text(
            '--override legacy-cart=on: flag "legacy-cart" is "on": set on the command line'
        )


def test_the_address_holds_what_is_searched_for(browser: Browser, served: Shop) -> None:
    with tab(browser, served.origin) as opened:
        page = opened.open("/ui")
        page.fill("#q", "GOLD")
        expect(page.locator("tbody tr")).to_have_count(1)
        page.select_option("#state", "enabled")
        expect(page).to_have_url(re.compile(r"/ui/flags\?q=GOLD&state=enabled$"))
        with tab(browser, served.origin) as colleague:
            again = colleague.open(page.url.removeprefix(served.origin))
            expect(again.locator("#q")).to_have_value("GOLD")
            expect(again.locator("tbody tr")).to_have_count(1)


def test_the_delivery_shows_what_a_schedule_is_to_change(browser: Browser, served: Shop) -> None:
    rule = "{if: [{between: ['2499-12-24T18:00', '2499-12-27T06:00', Europe/Berlin]}, christmas]}"
    with tab(browser, served.origin) as opened:
        page = opened.open("/ui/delivery")
        expect(page.locator("h3", has_text="Calendar")).to_have_count(0)
        served.change(
            "defaultVariant: plain", f"defaultVariant: plain\n    targeting: {rule}", "Christmas (#33)"
        )
        expect(page.locator("h3:text('Calendar') + ul li")).to_have_text(
            "From 2499-12-24 18:00 to 2499-12-27 06:00 Europe/Berlin: banner-text: christmas"
        )


def test_a_commit_shows_in_list_and_flag_without_a_reload(browser: Browser, served: Shop) -> None:
    with tab(browser, served.origin) as opened, tab(browser, served.origin) as other:
        flags, flag = opened.open("/ui"), other.open("/ui/flag?key=banner-text")
        for page in (flags, flag):
            page.evaluate("window.notReloaded = true")
        flag.fill("#targetingKey", "half-typed")
        served.change("defaultVariant: plain", "defaultVariant: christmas", "Christmas banner (#33)")
        expect(flags.locator("tr.fresh", has_text="banner-text")).to_contain_text("christmas")
        expect(flags.locator("tr", has_text="banner-text")).to_contain_text("Christmas banner (#33)")
        expect(flag.locator(".history li").first).to_contain_text("default plain")
        expect(flag.locator("#targetingKey")).to_have_value("half-typed")
        assert [page.evaluate("window.notReloaded") for page in (flags, flag)] == [True, True]


def test_a_flag_has_its_shares_environments_history_and_places(browser: Browser, served: Shop) -> None:
    commit = served.repository.git("rev-parse", "HEAD")
    with tab(browser, served.origin) as opened:
        page = opened.open("/ui/flag?key=max-items")
        expect(page.locator(".clauses")).to_contain_text("For users whose tier is gold or platinum")
        changed = page.locator(".history li").first
        expect(changed).to_contain_text("variants few: 10 → 20")
        request = changed.get_by_role("link", name="pull request")
        expect(request).to_have_attribute("href", "https://github.com/shop/flags/pull/31")
        place = page.locator(".places a").first
        href = f"https://github.com/shop/flags/blob/{commit}/flags/base/checkout.yaml#L23"
        expect(place).to_have_attribute("href", href)
        page = opened.open(FLAG)
        expect(page.locator(".environments thead")).to_contain_text("staging")
        expect(page.locator(".split")).to_contain_text("0 to 24")


def test_what_if_shows_value_bucket_and_steps_and_reads_attributes(browser: Browser, served: Shop) -> None:
    with tab(browser, served.origin) as opened:
        page = opened.open(FLAG)
        page.fill("#targetingKey", "user-42")
        page.get_by_role("button", name="Evaluate").click()
        answer = page.locator("#answer")
        expect(answer).to_contain_text("user-42 is in bucket 55 of 100; on is 0 to 24; off is 25 to 99")
        expect(answer.locator(".given .variant")).to_have_text("off")
        page.get_by_label("email").fill("ada@example.com")
        page.get_by_role("button", name="Evaluate").click()
        expect(answer.locator(".given .variant")).to_have_text("on")
        expect(answer).to_contain_text("email ends with @example.com: yes")
        page.get_by_label("Other attributes").fill("{")
        page.get_by_role("button", name="Evaluate").click()
        expect(answer).to_contain_text("Other attributes are not JSON")
        expect(page).to_have_url(f"{served.origin}{FLAG}")


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_window(
    browser: Browser, served: Shop, size: tuple[int, int], dark: bool
) -> None:
    with tab(browser, served.origin, size=size, dark=dark) as opened:
        served.change("defaultVariant: plain", "defaultVariant: plane", "A typo")
        for path in (
            "/ui",
            "/ui/flags?q=nothing",
            FLAG,
            "/ui/delivery",
            "/ui/pending",
            "/ui/flag?key=legacy-cart",
        ):
            page = opened.open(path)
            if "new-checkout" in path:
                page.get_by_role("button", name="Evaluate").click()
                page.wait_for_selector(".result")
            assert opened.violations() == []
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_a_problem_appears_in_delivery_and_pending_and_goes_with_its_correction(
    browser: Browser, served: Shop
) -> None:
    with tab(browser, served.origin) as opened, tab(browser, served.origin) as other:
        delivery, pending = opened.open("/ui/delivery"), other.open("/ui/pending")
        expect(delivery.locator(".timeline .done").last).to_contain_text("On all evaluators")
        # The override of the command line keeps a flag from all users.
        expect(delivery.locator(".timeline .open")).to_have_text(re.compile("For all users"))
        expect(pending.locator("main")).to_contain_text("Restart without --override legacy-cart=on")
        expect(pending.locator("#pending-count")).to_have_text("1")
        served.change("defaultVariant: plain", "defaultVariant: plane", "A typo")
        problem = "flags/base/checkout.yaml:21:21: error: `variants` has no"
        for page in (delivery, pending):
            expect(page.locator("main")).to_contain_text(problem)
        expect(pending.locator("main")).to_contain_text("Held flags")
        expect(pending.locator("#pending-count")).to_have_text("3")
        expect(delivery.locator("#pending-count")).to_have_text("3")
        served.change("defaultVariant: plane", "defaultVariant: plain", "Correct the typo")
        expect(pending.locator("main")).not_to_contain_text("Held flags")
        expect(pending.locator("#pending-count")).to_have_text("1")
        expect(delivery.locator("main")).not_to_contain_text(problem)


def test_the_way_to_a_flag_and_an_answer_needs_no_mouse(browser: Browser, served: Shop) -> None:
    with tab(browser, served.origin) as opened:
        page = opened.open("/ui")
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        page.keyboard.press("/")
        expect(page.locator("#q")).to_be_focused()
        page.keyboard.type("new-check")
        expect(page.locator("tbody tr")).to_have_count(1)
        for _ in range(5):
            page.keyboard.press("Tab")
        expect(page.locator("a.key")).to_be_focused()
        page.keyboard.press("Enter")
        page.wait_for_selector("#targetingKey")
        page.focus("#targetingKey")
        page.keyboard.type("user-1")
        page.keyboard.press("Enter")
        expect(page.locator("#answer")).to_contain_text("user-1 is in bucket")


def test_search_and_what_if_work_without_scripts(browser: Browser, served: Shop) -> None:
    with tab(browser, served.origin, java_script_enabled=False) as opened:
        page = opened.page
        page.goto(f"{served.origin}/ui/flags?q=gold")
        expect(page.locator("tbody tr")).to_have_count(1)
        page.goto(f"{served.origin}{FLAG}")
        page.fill("#targetingKey", "user-42")
        page.get_by_role("button", name="Evaluate").click()
        expect(page.locator("#answer")).to_contain_text("bucket 55 of 100")


def test_ten_thousand_flags_are_paged_on_the_server(browser: Browser, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "many")
    rule = {"if": [{"in": [{"var": "tier"}, ["gold"]]}, "on"]}
    one = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
    flags = {f"flag-{number:05}": {**one, "targeting": rule} for number in range(10_000)}
    repository.commit("many", flags__json=json.dumps({"flags": flags}))
    with up(repository) as running_up:
        origin = f"http://localhost:{running_up.ready()['management']}"
        with tab(browser, origin) as opened:
            page = opened.open("/ui")
            expect(page.locator(".count")).to_have_text("10000 flags")
            expect(page.locator("tbody tr")).to_have_count(50)
            page.get_by_role("link", name="Next").click()
            expect(page.locator("tbody tr").first).to_contain_text("flag-00050")
            page.wait_for_selector("#connection.live")
            page.fill("#q", "flag-0999")
            expect(page.locator("tbody tr")).to_have_count(10)
            page = opened.open("/ui")
            assert page.evaluate("performance.getEntriesByType('navigation')[0].decodedBodySize") < 100_000


IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
SHOTS: Final = {
    "page-flags": ("/ui", DESK, False),
    "page-flag": ("/ui/flag?key=new-checkout", DESK, False),
    "page-flag-dark": ("/ui/flag?key=max-items", DESK, True),
    "page-delivery": ("/ui/delivery", DESK, False),
    "page-phone": ("/ui", PHONE, False),
}


@pytest.mark.skipif("FLAGSTAFF_REWRITE" not in os.environ, reason="writes the pictures of docs/page.md")
def test_the_pictures_of_the_document(browser: Browser, served: Shop) -> None:
    for name, (path, size, dark) in SHOTS.items():
        with tab(browser, served.origin, size=size, dark=dark) as opened:
            page = opened.open(path)
            page.wait_for_selector(
                {"/ui": "text=Grace", "/ui/delivery": ".timeline .done"}.get(path, ".history li")
            )
            if "new-checkout" in path:
                page.fill("#targetingKey", "user-42")
                page.get_by_role("button", name="Evaluate").click()
                page.wait_for_selector(".result")
            page.screenshot(path=IMAGES / f"{name}.png", full_page=name == "page-flag")


def test_the_document_shows_every_picture() -> None:
    text = (IMAGES.parent / "page.md").read_text(encoding="utf-8")
    assert [
        name for name in SHOTS if f"(images/{name}.png)" not in text or not (IMAGES / f"{name}.png").is_file()
    ] == []
