from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from controller.artifacts.storage import MAX_JSON_BYTES, MAX_KEYS, MAX_TEXT, Artifact

FIELDS: dict[str, Any] = {
    "revision": "main@sha1:" + "a" * 40,
    "digest": "sha256:" + "b" * 64,
    "size": 12,
    "path": "b" * 64 + ".tar.gz",
    "metadata": {"flagstaff.dev/author": "Ada <ada@example.com>"},
}


@given(
    st.builds(
        Artifact,
        revision=st.text(min_size=1, max_size=MAX_TEXT),
        digest=st.just(FIELDS["digest"]),
        size=st.integers(min_value=0),
        path=st.just(FIELDS["path"]),
        metadata=st.dictionaries(st.text(max_size=50), st.text(max_size=MAX_TEXT), max_size=MAX_KEYS),
    )
)
def test_what_is_written_as_json_is_read_as_the_same_artifact(artifact: Artifact) -> None:
    line = artifact.model_dump_json()
    assert "\n" not in line
    assert Artifact.model_validate_json(line) == artifact


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("revision", ""), ("revision", 3), ("digest", "sha256:short"),
        ("digest", "sha256:" + "b" * 64 + "\n"), ("size", -1), ("size", True), ("size", "12"),
        ("path", "../escape"), ("path", "/etc/passwd"), ("path", ""),
        ("metadata", {"author": "x" * (MAX_TEXT + 1)}), ("metadata", {"x" * (MAX_TEXT + 1): ""}),
        ("metadata", {"author": 3}), ("metadata", {str(number): "" for number in range(MAX_KEYS + 1)}),
        ("metadata", []), ("metadata", None),
    ],
)  # fmt: skip
def test_a_field_of_the_wrong_shape_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        Artifact.model_validate_json(json.dumps(FIELDS | {field: value}))


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "null", '{"revision":"main"}', json.dumps(FIELDS | {"surplus": 1}), "[" * 60_000,
        json.dumps(FIELDS | {"revision": "x" * MAX_JSON_BYTES}), b"\xff",
    ],
    ids=["nothing", "a list", "null", "too few", "too many", "deep", "long", "not utf-8"],
)  # fmt: skip
def test_json_that_is_no_artifact_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Artifact.model_validate_json(text)


def test_an_artifact_never_changes() -> None:
    artifact = Artifact(**FIELDS)
    with pytest.raises(ValidationError):
        artifact.size = 0  # the point of the test
    assert artifact.model_dump() == FIELDS
