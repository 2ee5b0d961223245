"""When a revision was first observed, as the object that delivers it says."""

from __future__ import annotations

from typing import Any

import pytest

from controller.api.artifact_status import ArtifactStatus
from controller.api.meta import Resource
from controller.flagsets.build import with_observation_time

AT = "flagstaff.dev/observed-at"
REVISION = "flagstaff.dev/revision"
FIRST, SECOND = "2026-01-01T00:00:00.123Z", "2026-01-02T00:00:00.456Z"
OLDER, NEWER = {REVISION: "main@sha1:1"}, {REVISION: "main@sha1:2"}


def artifact(**metadata: str) -> ArtifactStatus:
    return ArtifactStatus(
        url="http://a", revision="main@sha1:2", digest="sha256:1", metadata=metadata,
        last_update_time="2026-01-03T00:00:00Z",
    )  # fmt: skip


def observation_time(
    revision: str, known: dict[str, str] | None, created: str = "", **metadata: str
) -> str | None:
    manifest: dict[str, Any] = {
        "kind": "FeatureFlagConfiguration",
        "metadata": {"name": "x", "namespace": "shop", "annotations": {REVISION: revision}},
    }
    found = None
    if known is not None:
        meta = {"name": "x", "namespace": "shop", "annotations": known}
        found = Resource.of({"kind": "FeatureFlagConfiguration", "metadata": meta})
    (made,) = with_observation_time([manifest], artifact(**metadata), created, lambda _: found)
    stamp: str | None = made["metadata"]["annotations"].get(AT)
    return stamp


@pytest.mark.parametrize(
    ("revision", "known", "metadata", "expected"),
    [
        pytest.param("main@sha1:2", None, {AT: SECOND}, SECOND, id="a new one: what its source says"),
        pytest.param("main@sha1:2", None, {}, "2026-01-03T00:00:00Z", id="Flux's source: when it was stored"),
        pytest.param("main@sha1:2", {**OLDER, AT: FIRST}, {AT: SECOND}, SECOND, id="another than before"),
        pytest.param("main@sha1:2", {**NEWER, AT: FIRST}, {AT: SECOND}, FIRST, id="stored again"),
        pytest.param("main@sha1:1", {**OLDER, AT: FIRST}, {AT: SECOND}, FIRST, id="a commit without flags"),
        pytest.param("main@sha1:1", None, {AT: SECOND}, None, id="an earlier one of which nobody knows"),
    ],
)  # fmt: skip
def test_the_moment_is_that_of_the_revision_that_changed_the_content(
    revision: str, known: dict[str, str] | None, metadata: dict[str, str], expected: str | None
) -> None:
    assert observation_time(revision, known, **metadata) == expected


def test_a_flag_set_that_was_made_later_counts_from_when_it_was_made() -> None:
    later = "2026-01-04T00:00:00Z"
    assert observation_time("main@sha1:2", None, later, **{AT: SECOND}) == later
    assert observation_time("main@sha1:2", None, "2025-01-01T00:00:00Z", **{AT: SECOND}) == SECOND
