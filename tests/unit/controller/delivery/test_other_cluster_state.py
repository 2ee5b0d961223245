"""The state of a flag set that is in another cluster, of which the FlagSet's status alone tells."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from controller.api.meta import Resource
from controller.delivery.reach import ReachTarget, reach
from controller.delivery.set_reading import read_sets
from controller.delivery.set_state import Reach

NOW: Final = datetime(2026, 1, 2, tzinfo=UTC)
REVISION: Final = "main@sha1:aaaaaaaaaaaa"
DIGEST: Final = "sha256:abc"
SERVER: Final = "https://eu:6443"
APPLIED: Final = {
    "observedGeneration": 1,
    "conditions": [{"type": "Ready", "status": "True", "reason": "Succeeded", "message": "Applied"}],
    "lastAppliedRevision": REVISION,
    "lastAttemptedRevision": REVISION,
    "digest": DIGEST,
    "target": [{"kind": "FeatureFlagConfiguration", "name": "checkout"}],
    "history": [{"revision": REVISION, "digest": DIGEST}],
    "remoteClusters": [{"server": SERVER, "kubeConfig": {"secretRef": {"name": "eu"}}}],
}


def remote_set(**status: Any) -> Resource:
    spec = {"sourceRef": {"kind": "FlagSource", "name": "flags"}, "kubeConfig": {"secretRef": {"name": "eu"}}}
    meta = {"name": "checkout", "namespace": "shop", "generation": 1}
    return Resource.of({"kind": "FlagSet", "metadata": meta, "spec": spec, "status": status})


@pytest.mark.parametrize(
    ("served", "level", "words"),
    [
        (None, Reach.DELIVERED, "nobody reports who serves"),
        ("1/2", Reach.DELIVERED, "1 of 2 evaluators serve"),
        ("2/2", Reach.SERVED_BY_ALL, "2 of 2 evaluators serve"),
    ],
)
def test_it_is_as_far_as_the_flag_set_tells(served: str | None, level: Reach, words: str) -> None:
    (state,) = read_sets([remote_set(**APPLIED, **({"served": served} if served else {}))], NOW)
    reached = reach(state, ReachTarget(REVISION))
    assert (state.cluster, reached.level) == (SERVER, level)
    assert words in reached.message
    assert f"FeatureFlagConfiguration/checkout in {SERVER}" in [stage.name for stage in state.stages]


def test_what_was_not_applied_yet_is_in_no_cluster() -> None:
    (state,) = read_sets([remote_set()], NOW)
    assert (state.cluster, state.exists) == ("", False)
