"""Whatever `flagstaff lint -f` says of a manifest, admission says of the object in the same words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from controller.cli import main
from controller.delivery.problem_text import summary
from controller.runtime.plain_text import one_line
from controller.validation.object_problems import KINDS, objection
from tests.bad_manifests import BEYOND_SCHEMA, BY_SCHEMA, DOUBTFUL

if TYPE_CHECKING:
    from pathlib import Path

BAD = BY_SCHEMA | BEYOND_SCHEMA
STORED = {"uid": "u", "resourceVersion": "7", "generation": 1, "managedFields": [{"manager": "kubectl"}]}


def lint(manifest: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[Any]:
    (tmp_path / "x.json").write_text(json.dumps(manifest))
    main(["lint", "-f", str(tmp_path / "x.json"), "-o", "json"])
    problems: list[Any] = json.loads(capsys.readouterr().out)
    return problems


def sent_object(manifest: dict[str, Any]) -> dict[str, Any]:
    """The object as the API server sends it, which has filled in what it keeps itself."""
    return {**manifest, "metadata": {**manifest["metadata"], **STORED}, "status": {"observedGeneration": "x"}}


@pytest.mark.parametrize("manifest", BAD.values(), ids=BAD)
def test_a_refusal_has_the_words_of_lint(
    manifest: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = lint(manifest, tmp_path, capsys)
    words = [one_line(each["message"], 500) for each in found if each["severity"] == "error"]
    refusal, warnings = objection(sent_object(manifest))
    assert refusal == summary(words, len(words))
    assert words
    assert warnings == ()


@pytest.mark.parametrize("manifest", DOUBTFUL.values(), ids=DOUBTFUL)
def test_a_warning_has_the_words_of_lint(
    manifest: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [each["message"] for each in lint(manifest, tmp_path, capsys)]
    assert objection(sent_object(manifest)) == ("", tuple(words))
    assert words


def test_every_kind_is_refused_for_something() -> None:
    assert {manifest["kind"] for manifest in BAD.values()} == set(KINDS)
