"""What is read of a status, and what is written of one."""

from __future__ import annotations

from typing import Any

import pytest

from controller.api.featureflagconfiguration import ConfigurationStatus
from controller.api.flagset_status import FlagSetStatus, HeldFlag, HistoryEntry
from controller.api.flagsource import FlagSourceStatus
from controller.api.kinds import status_of
from controller.api.meta import Resource
from controller.api.status import Condition, Status


def flag_set(**status: Any) -> Resource:
    return Resource.of({"kind": "FlagSet", "metadata": {"name": "a", "namespace": "b"}, "status": status})


def test_a_status_is_parsed_once_for_each_state_of_an_object() -> None:
    found = flag_set(digest="sha256:a")
    first = FlagSetStatus.of(found)
    assert first is FlagSetStatus.of(found) is Status.of(found) is status_of(found)
    assert FlagSetStatus.of(flag_set(digest="sha256:a")) is not first


@pytest.mark.parametrize("odd", ["x", 7, None, [3], {"a": 1}])
def test_a_field_that_is_malformed_counts_as_absent_and_the_others_stand(odd: Any) -> None:
    fields = ("flags", "held", "history", "conditions", "observedGeneration")
    status = FlagSetStatus.of(flag_set(digest="sha256:a", **dict.fromkeys(fields[:-1], odd)))
    assert (status.digest, status.held, status.history, status.conditions) == ("sha256:a", (), (), ())
    assert FlagSourceStatus.of(flag_set(artifact=odd)).artifact is None


def test_of_a_list_only_the_malformed_entries_are_left_out() -> None:
    ready = {"type": "Ready", "status": "False", "reason": "A", "message": "b", "lastTransitionTime": "t"}
    status = FlagSetStatus.of(
        flag_set(conditions=[3, {"status": "True"}, ready], history=[{"revision": 1}, {"revision": "r"}])
    )
    assert status.conditions == (Condition("Ready", "False", "A", "b"),)
    assert (status.condition("Ready").since, status.failure, status.why) == ("t", "A", ": b")
    assert status.history == (HistoryEntry("r"),)


def test_an_object_that_is_not_there_has_an_empty_status() -> None:
    assert ConfigurationStatus.of(None) == ConfigurationStatus()
    assert (Status.of(None).condition("Ready").status, Status.of(None).is_ready) == ("", False)


def test_what_was_given_is_written_and_below_it_no_defaults() -> None:
    given = FlagSetStatus(
        held=(HeldFlag(name="a", revision=None),), problems=(), served=None, held_flags=0,
        history=(HistoryEntry("r", committed_at="t", subject=None),),
    )  # fmt: skip
    assert given.fields() == {
        "held": [{"name": "a"}], "problems": [], "served": None, "heldFlags": 0,
        "history": [{"revision": "r", "committedAt": "t"}],
    }  # fmt: skip
    assert (given | FlagSetStatus(served="1/1")).fields() == given.fields() | {"served": "1/1"}
