"""Conflicts between objects, in the status of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from controller.api.meta import ObjectKey, Resource
from controller.configurations.reconciler import ConfigurationReconciler
from controller.delivery.claims import ClaimIndex
from controller.runtime.cache import Cache
from tests.statuses import find
from tests.worlds.flagsets import BROKEN, START
from tests.worlds.stages import take_turn

if TYPE_CHECKING:
    from controller.runtime.result import Settled

FFC, FLAG = "FeatureFlagConfiguration", "FeatureFlag"


class Claimants:
    """Objects and what is said of them."""

    def __init__(self) -> None:
        self.claims = ClaimIndex()
        self.flags: dict[str, Any] = {}
        self.reconciler = ConfigurationReconciler(Cache(), self.claims)
        self.statuses: dict[ObjectKey, dict[str, Any]] = {}

    def there(
        self, kind: str, name: str, wanted: str = "", *, namespace: str = "shop", age: int = 1
    ) -> ObjectKey:
        found = self.resource(ObjectKey(kind, namespace, name), wanted, age)
        self.claims.follow(None, found)
        return found.key

    def forget(self, key: ObjectKey) -> None:
        self.claims.follow(self.resource(key), None)

    def resource(self, key: ObjectKey, wanted: str = "", age: int = 1) -> Resource:
        meta = {"name": key.name, "namespace": key.namespace, "uid": str(key), "generation": 1,
                "creationTimestamp": f"2026-01-0{age}T00:00:00Z"}  # fmt: skip
        spec = {"flagSpec": {"flags": self.flags, "metadata": {"flagSetId": wanted} if wanted else {}}}
        status = self.statuses.get(key, {})
        return Resource.of({"kind": key.kind, "metadata": meta, "spec": spec, "status": status})

    async def look(self, key: ObjectKey) -> Settled:
        resource = self.resource(key)
        settled = (await take_turn(self.reconciler, resource, START)).settled
        self.statuses[key] = settled.status
        return settled

    def condition_of(self, key: ObjectKey, kind: str = "NameConflict") -> tuple[str, str, str] | None:
        """(status, reason, message) of a condition."""
        known = find(self.statuses[key], kind)
        return None if known is None else (known["status"], known["reason"], known["message"])


@pytest.fixture
def world() -> Claimants:
    return Claimants()


async def test_an_object_without_a_rival_has_no_condition_of_conflict(world: Claimants) -> None:
    key = world.there(FFC, "x", "id")
    assert (await world.look(key)).events == ()
    assert world.condition_of(key) is None
    assert world.condition_of(key, "Ready") == ("True", "Succeeded", "0 flags are valid")


LOST = "not served under this name: FeatureFlagConfiguration shop/x has the same name; remove one of them"
WON = "FeatureFlag shop/x of the same name is not served; remove one of them"


@pytest.mark.parametrize(("kind", "reason", "message"), [(FLAG, "Shadowed", LOST), (FFC, "Shadows", WON)])
async def test_two_objects_of_one_name_both_show_the_conflict(
    world: Claimants, kind: str, reason: str, message: str
) -> None:
    keys = {each: world.there(each, "x") for each in (FFC, FLAG)}
    settled = await world.look(keys[kind])
    assert world.condition_of(keys[kind]) == ("True", reason, message)
    assert world.condition_of(keys[kind], "Ready") == ("True", "Succeeded", f"0 flags are valid; {message}")
    assert [(each.reason, each.message, each.severity) for each in settled.events] == [
        (reason, message, "Warning")
    ]


async def test_two_objects_of_one_namespace_with_one_flag_set_id_both_show_the_conflict(
    world: Claimants,
) -> None:
    old, new = world.there(FFC, "old", "id"), world.there(FLAG, "new", "id", age=2)
    for key in (old, new):
        await world.look(key)
    assert world.condition_of(old) == (
        "True", "FlagSetIdContested",
        'FeatureFlag shop/new also claims flagSetId "id"; this one comes first and is served instead',
    )  # fmt: skip
    assert world.condition_of(new) == (
        "True", "FlagSetIdTaken",
        'not served under flagSetId "id": FeatureFlagConfiguration shop/old claims it too and comes first; '
        "give one of them another flagSetId",
    )  # fmt: skip


async def test_no_other_tenant_s_object_is_named_and_no_other_tenant_warns_of_his(world: Claimants) -> None:
    old = world.there(FFC, "secret", "id", namespace="bank")
    new = world.there(FFC, "new", "id", age=2)
    for key in (old, new):
        await world.look(key)
    assert world.condition_of(old) is None
    status, reason, message = world.condition_of(new) or ("", "", "")
    assert (status, reason) == ("True", "FlagSetIdTaken")
    assert "an object in another namespace claims it too and comes first" in message
    assert not {"bank", "secret"} & set(message.replace("/", " ").split())


async def test_the_conflict_that_is_lost_gives_the_reason_and_the_message_names_all(world: Claimants) -> None:
    world.there(FFC, "old", "id")
    key = world.there(FFC, "x", "id", age=2)
    world.there(FLAG, "x")
    settled = await world.look(key)
    _, reason, message = world.condition_of(key) or ("", "", "")
    assert (reason, message.startswith(f"{WON}; not served under flagSetId")) == ("FlagSetIdTaken", True)
    assert [each.reason for each in settled.events] == ["Shadows", "FlagSetIdTaken"]


async def test_a_conflict_is_reported_once_and_again_after_it_was_settled(world: Claimants) -> None:
    world.there(FFC, "x")
    key = world.there(FLAG, "x")
    assert [len((await world.look(key)).events) for _ in range(3)] == [1, 0, 0]
    world.forget(ObjectKey(FFC, "shop", "x"))
    assert ((await world.look(key)).events, world.condition_of(key)) == ((), None)
    world.there(FFC, "x")
    assert len((await world.look(key)).events) == 1


async def test_one_more_conflict_is_the_only_one_that_is_reported(world: Claimants) -> None:
    key = world.there(FFC, "x", "id", age=2)
    world.there(FLAG, "x")
    await world.look(key)
    other = world.there(FFC, "old", "id")
    assert [each.reason for each in (await world.look(key)).events] == ["FlagSetIdTaken"]
    world.forget(other)
    assert (await world.look(key)).events == ()


async def test_an_invalid_object_shows_the_conflict_beside_its_failure_until_it_ends(
    world: Claimants,
) -> None:
    world.flags = {"a": BROKEN}
    world.there(FFC, "x")
    key = world.there(FLAG, "x")
    assert [each.reason for each in (await world.look(key)).events] == ["InvalidFlags", "Shadowed"]
    assert world.condition_of(key) == ("True", "Shadowed", LOST)
    assert (world.condition_of(key, "Ready") or ())[:2] == ("False", "InvalidFlags")
    world.forget(ObjectKey(FFC, "shop", "x"))
    assert ((await world.look(key)).events, world.condition_of(key)) == ((), None)


async def test_a_conflict_over_a_long_identifier_is_reported_once(world: Claimants) -> None:
    long = "\u200b" * 10_000
    world.there(FFC, "a" * 250, long)
    key = world.there(FFC, "x" * 250, long, age=2)
    world.there(FLAG, "x" * 250)
    assert [len((await world.look(key)).events) for _ in range(2)] == [2, 0]


async def test_a_deleted_object_is_forgotten(world: Claimants) -> None:
    key = world.there(FFC, "x")
    await world.look(key)
    world.reconciler.forget(key)
    assert world.reconciler.remembered_objects == 0
