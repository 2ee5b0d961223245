"""How revisions and digests are named and compared."""

from __future__ import annotations

import pytest

from controller.delivery.digests import Digests, is_revision, names_revision, short, short_apart

NEW = f"main@sha1:{'b' * 40}"
DIGEST = f"sha256:{'4' * 12}{'5' * 52}"


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [(NEW, True), ("b" * 40, True), ("b" * 7, True), ("b" * 6, False), (f"main@sha1:{'a' * 40}", False),
     ("main", False), ("main@sha1:" + "b" * 7, False)],
)  # fmt: skip
def test_a_revision_is_named_by_all_of_it_or_by_its_commit_s_beginning(wanted: str, meant: bool) -> None:
    assert names_revision(wanted, NEW) is meant


@pytest.mark.parametrize(
    ("text", "ok"), [(NEW, True), ("b" * 7, True), ("b" * 6, False), ("main", False), ("BBBBBBB", False)]
)  # fmt: skip
def test_a_revision_may_be_waited_for(text: str, ok: bool) -> None:
    assert is_revision(text) is ok


def test_two_texts_that_would_look_equal_are_not_shortened() -> None:
    other = f"sha256:{'4' * 12}{'6' * 52}"
    assert short(DIGEST) == short(other) == f"sha256:{'4' * 12}"
    assert short_apart(DIGEST, [other]) == (DIGEST, [other])
    assert short_apart(DIGEST, [NEW]) == (f"sha256:{'4' * 12}", [f"main@sha1:{'b' * 12}"])


def test_digests_agree_where_the_object_has_what_was_built() -> None:
    assert Digests(built="a", own="a", effective="b").agree
    assert Digests(own="a", effective="a").agree
    assert not Digests(built="a", own="b", effective="a").agree
    assert not Digests().has(None)
