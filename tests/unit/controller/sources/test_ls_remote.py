from __future__ import annotations

import asyncio
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.runtime.setbacks import Stalled
from controller.sources.git_references import (
    MAX_REFERENCES,
    Reference,
    References,
    choose,
    choose_among,
    parse,
)


async def test_a_listing_names_head_and_the_commits_of_tags() -> None:
    lines = [
        "ref: refs/heads/main\tHEAD", "aa\tHEAD", "ref: refs/remotes/origin/dev\trefs/remotes/origin/HEAD",
        "aa\trefs/heads/main", "bb\trefs/tags/v1", "aa\trefs/tags/v1^{}", "a warning without a tab",
    ]  # fmt: skip
    refs = {"HEAD": "aa", "refs/heads/main": "aa", "refs/tags/v1": "aa"}
    assert await parse("\n".join(lines), "r") == References(refs, "refs/heads/main")


@settings(max_examples=100)
@given(st.text(st.sampled_from("abr:ef/\t\n ^{}HEAD"), max_size=60))
def test_any_listing_is_read(text: str) -> None:
    found = asyncio.run(parse(text, "r"))
    assert not any(name.endswith("^{}") and "^{}^{}" not in text for name in found.commits)
    assert found.head is None or found.head in text


def tags(count: int) -> str:
    return "".join(f"{number:040x}\trefs/tags/v1.0.{number}\n" for number in range(count))


async def test_more_references_than_the_cap_are_refused() -> None:
    with pytest.raises(Stalled, match=f"https://h/r: .*{MAX_REFERENCES} references") as setback:
        await parse(tags(MAX_REFERENCES + 1), "https://h/r")
    assert setback.value.reason == "LimitExceeded"


async def test_many_references_are_parsed_and_chosen_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def choose_and_note(*given: object) -> object:
        threads.append(threading.get_ident())
        return choose(*given)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr("controller.sources.git_references.choose", choose_and_note)
    found = await parse(tags(3_000), "r")
    assert (await choose_among(found, Reference(semver="1.x"))).name == "v1.0.2999"
    assert threading.get_ident() not in threads
    assert len(threads) == 1
