"""An object as the API server has it."""

from __future__ import annotations

import pytest

from controller.api.meta import ObjectKey, Resource
from controller.api.status import Condition, condition_json

BODY = {
    "apiVersion": "flagstaff.dev/v1beta1",
    "kind": "FlagSource",
    "metadata": {
        "name": "flags", "namespace": "shop", "uid": "u", "generation": 3, "resourceVersion": "9",
        "labels": {"a": "b"}, "annotations": {"c": "d"}, "ownerReferences": [{"uid": "o"}],
        "deletionTimestamp": "2026-01-01T00:00:00Z", "creationTimestamp": "2025-01-01T00:00:00Z",
    },
    "spec": {"suspend": True},
    "status": {"observedGeneration": 3},
}  # fmt: skip


def test_a_body_is_read_whole() -> None:
    found = Resource.of(BODY)
    assert found.key == ObjectKey("FlagSource", "shop", "flags")
    assert str(found.key) == "FlagSource/shop/flags"
    assert (found.uid, found.generation, found.resource_version) == ("u", 3, "9")
    assert (found.labels, found.annotations, found.owners) == ({"a": "b"}, {"c": "d"}, ({"uid": "o"},))
    assert found.deleting
    assert found.suspended
    assert found.created == "2025-01-01T00:00:00Z"


def test_what_is_missing_or_malformed_is_empty() -> None:
    found = Resource.of({"kind": "FlagSource", "metadata": {"name": "x"}, "spec": [], "status": None})
    assert (dict(found.spec), dict(found.status), found.owners) == ({}, {}, ())
    assert not found.deleting
    assert not found.suspended


@pytest.mark.parametrize("value", ["true", 1, None, False])
def test_only_true_suspends(value: object) -> None:
    assert not Resource.of({**BODY, "spec": {"suspend": value}}).suspended


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    first = condition_json(Condition("Ready", "True", "A"), Condition("Ready", ""), generation=1, now="t1")
    before = Condition("Ready", "True", "A", since="t1")
    same = condition_json(Condition("Ready", "True", "B", "words"), before, generation=2, now="t2")
    other = condition_json(Condition("Ready", "False", "B"), before, generation=2, now="t2")
    assert [each["lastTransitionTime"] for each in (first, same, other)] == ["t1", "t1", "t2"]
    assert same["observedGeneration"] == 2
