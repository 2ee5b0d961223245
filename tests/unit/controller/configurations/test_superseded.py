"""What an object says that its FlagSet has left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from controller.api.featureflagconfiguration import ConfigurationStatus
from controller.configurations.reconciler import ConfigurationReconciler
from controller.configurations.stage import CONFIGURATIONS
from controller.configurations.validation import superseded_condition
from controller.delivery.claims import ClaimIndex
from controller.runtime.cache import Change
from controller.runtime.watches import keys_to_wake
from tests.statuses import find
from tests.worlds.flagsets import START
from tests.worlds.objects import cache_of, thing
from tests.worlds.stages import take_turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.meta import Resource

KIND = "FeatureFlagConfiguration"


STAGES = (CONFIGURATIONS,)


def written(kind: str, name: str, status: Any = None) -> Resource:
    """What FlagSet checkout writes, or itself."""
    managers = [{"manager": "flagstaff-flagset/shop/checkout"}]
    labels = {"flagstaff.dev/flagset": "checkout"}
    return thing(kind, name, {"flagSpec": {"flags": {}}}, status, labels=labels, managedFields=managers)


def flag_set(*targets: str) -> Resource:
    return written("FlagSet", "checkout", {"target": [{"kind": KIND, "name": name} for name in targets]})


async def condition_of(about: Resource, *objects: Resource) -> Mapping[str, Any] | None:
    turn = await take_turn(
        ConfigurationReconciler(cache_of(*objects, stages=STAGES), ClaimIndex()), about, START
    )
    return find(turn.settled.status, "Superseded")


async def test_an_object_whose_flag_set_writes_another_says_so() -> None:
    known = await condition_of(written(KIND, "old"), flag_set("new"))
    assert known is not None
    assert (known["status"], known["reason"], known["message"]) == (
        "True", "TargetChanged",
        "FlagSet checkout writes FeatureFlagConfiguration new and not this object any more; "
        "no proxy reports who follows it",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("total", "delivered", "words"),
    [(0, None, "nobody follows it"), (1, None, "1 subscriber follows it"), (2, 1, "3 subscribers follow it")],
)
def test_it_says_how_many_follow_the_object(total: int, delivered: int | None, words: str) -> None:
    status = ConfigurationStatus(total=total, delivered=delivered)
    [condition] = superseded_condition(written(KIND, "old"), cache_of(flag_set("new"), stages=STAGES), status)
    assert condition.message.endswith(f"; {words}")


@pytest.mark.parametrize(
    "objects", [(), (flag_set(),), (flag_set("old"),), (flag_set("new", "old"),)],
    ids=["no FlagSet", "nothing is written yet", "written", "written beside another"],
)  # fmt: skip
async def test_an_object_that_its_flag_set_writes_has_no_such_condition(
    objects: tuple[Resource, ...],
) -> None:
    assert await condition_of(written(KIND, "old"), *objects) is None


@pytest.mark.parametrize(
    ("before", "after", "superseded", "woken"),
    [
        ((), ("new",), (), set()),
        ((), ("new",), ("new",), {"new"}),
        (("old",), ("new",), (), {"old", "new"}),
        (("old",), ("old", "new"), (), {"new"}),
        (("old",), (), (), {"old"}),
    ],
    ids=["first", "first, left before", "another", "one more", "none"],
)
def test_a_changed_target_wakes_what_was_written_before_or_since(
    before: tuple[str, ...], after: tuple[str, ...], superseded: tuple[str, ...], woken: set[str]
) -> None:
    condition = {"type": "Superseded", "status": "True", "reason": "TargetChanged", "message": ""}
    objects = (
        written(KIND, name, {"conditions": [condition] if name in superseded else []})
        for name in ("old", "new")
    )
    change = Change(flag_set(*before), flag_set(*after))
    keys = keys_to_wake((CONFIGURATIONS,), cache_of(*objects, stages=STAGES), change)
    assert {key.name for key in keys} == woken


def test_a_deleted_flag_set_wakes_what_it_wrote() -> None:
    keys = keys_to_wake((CONFIGURATIONS,), cache_of(stages=STAGES), Change(flag_set("old"), None))
    assert {key.name for key in keys} == {"old"}
