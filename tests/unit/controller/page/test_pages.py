"""Requests to the page: which views there are, and what every answer says."""

from __future__ import annotations

import json

from tests.worlds.page import FakeSource, ask, flag, shown_set, text


def test_the_page_opens_on_the_flags_of_the_first_set() -> None:
    source = FakeSource([shown_set({"b": flag()}, "team/b"), shown_set({"a": flag()}, "team/a")])
    assert "Flags of team/a" in text(ask(source))


def test_a_set_that_is_hidden_is_refused_in_the_words_for_one_that_is_not_there() -> None:
    answer = ask(FakeSource([shown_set({"a": flag()})]), "/ui/flags?set=secret/flags")
    assert answer.status == 404
    assert "There is no flag set 'secret/flags', or you may not see it." in text(answer)


def test_nothing_may_be_loaded_from_elsewhere_or_run_inline() -> None:
    headers = dict(ask(FakeSource()).headers)
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; ")
    assert "unsafe" not in headers["content-security-policy"]
    assert "set-cookie" not in headers


def test_another_method_or_path_has_no_page() -> None:
    source = FakeSource([shown_set({"a": flag()})])
    assert ask(source, "/ui/nothing").status == 404
    assert ask(source, "/ui/flags", "state=off").status == 404


def test_the_manifest_of_a_set_is_for_who_may_see_it() -> None:
    source = FakeSource([shown_set({"a": flag()}, "team/a")])
    answer = ask(source, "/ui/sets/team/a/openfeature/v0/manifest")
    assert (answer.status, [entry["key"] for entry in json.loads(answer.body)["flags"]]) == (200, ["a"])
    hidden = ask(source, "/ui/sets/team/b/openfeature/v0/manifest")
    assert (hidden.status, json.loads(hidden.body)["error"]["message"]) == (
        404,
        "there is no flag set 'team/b', or you may not see it",
    )
