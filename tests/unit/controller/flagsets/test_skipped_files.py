"""What a tree lists and nobody read, held against the paths of a flag set."""

from __future__ import annotations

import pytest

from controller.flagsets.compose import compose, provenance_of
from controller.flagsets.layers import unread_problems
from evaluator.flags.model import FlagSet

LINK = "symlink, not followed"
MODULE = "submodule, not read"
NAMES = ("flags.json", "base/flags.json")


@pytest.mark.parametrize(
    ("skipped", "paths", "wanted"),
    [
        pytest.param(f"evil.json: {LINK}", ["."], ["evil.json"], id="a-definition-in-the-folder"),
        pytest.param(f"evil.json: {LINK}", ["evil.json"], ["evil.json"], id="named"),
        pytest.param(f"base/evil.yaml: {LINK}", ["**"], ["base/evil.yaml"], id="below"),
        pytest.param(f"prod: {LINK}", ["base", "prod"], ["prod"], id="a-folder-that-is-a-layer"),
        pytest.param(f"prod: {MODULE}", ["prod/eu/*.json"], ["prod"], id="on-the-way"),
        pytest.param(f"odd: name.json: {LINK}", ["."], ["odd: name.json"], id="a-colon-in-a-name"),
        pytest.param(f"README.md: {LINK}", ["."], [], id="no-definition"),
        pytest.param(f"base/evil.json: {LINK}", ["."], [], id="not-in-this-folder"),
        pytest.param(f"vendor: {MODULE}", ["."], [], id="a-submodule-elsewhere"),
        pytest.param(f"production: {LINK}", ["prod"], [], id="a-longer-name"),
        pytest.param(f"evil.json: {LINK}", ["../up", "nowhere"], [], id="paths-that-mean-nothing"),
    ],
)
def test_only_what_the_paths_mean_is_an_error(skipped: str, paths: list[str], wanted: list[str]) -> None:
    assert [problem.file for problem in unread_problems([skipped], NAMES, paths)] == wanted


def test_a_definition_that_was_not_read_refuses_the_revision_and_says_why() -> None:
    good = provenance_of("main@sha1:r1", "Ada <a@example.com>", "2026-01-02T03:04:05Z")
    served = FlagSet()
    made = compose(
        {"flags.json": b'{"flags":{}}'}, (), provenance=good, previous=served, skipped=[f"b.json: {LINK}"]
    )  # fmt: skip
    assert (made.accepted, made.flag_set) == (False, served)
    assert str(made.problems[0]).startswith(f"b.json: error: {LINK}; replace it")


@pytest.mark.parametrize(
    ("reason", "advice"),
    [(LINK, "replace it with a regular file"), (MODULE, "set recurseSubmodules of the FlagSource")],
)
def test_what_to_do_about_a_file_that_was_not_read_depends_on_why(reason: str, advice: str) -> None:
    (problem,) = unread_problems([f"prod: {reason}"], NAMES, ["prod"])
    assert problem.message.startswith(f"{reason}; {advice}")
