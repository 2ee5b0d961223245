"""What the status of a FlagOverride says, and what the objects say that it concerns."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.flagset import KIND, LABEL, manager_of
from controller.api.meta import ObjectKey
from controller.configurations.reconciler import ConfigurationReconciler
from controller.configurations.stage import CONFIGURATIONS
from controller.delivery.claims import ClaimIndex
from controller.delivery.delivered import delivery_of
from controller.delivery.object_bounds import OVERRIDES
from controller.delivery.overrides import override_progress
from controller.rollouts.override_reconciler import FlagOverrideReconciler
from controller.rollouts.stage import FLAG_OVERRIDES
from evaluator.flags.model import ABSENT
from evaluator.flags.overrides import MOST_LAYERS
from evaluator.resolving.resolve import compile_flag_set, resolve
from tests.statuses import read_condition
from tests.worlds.flags import flag
from tests.worlds.objects import manifest
from tests.worlds.stages import RecordingCluster, take_turn, written_by

if TYPE_CHECKING:
    from controller.runtime.loop import Reconciler
    from controller.runtime.result import Settled
    from evaluator.flags.accept import Progress

FLAG = flag(variants={"on": 1, "off": 0})
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPEC: dict[str, Any] = {
    "flagSetRef": {"name": "checkout"},
    "flag": "pay",
    "variant": "off",
    "reason": "INC-1: payments fail",
    "expiresAt": "2026-01-01T02:00:00Z",
}


@dataclass
class OverriddenCluster:
    cluster: RecordingCluster = field(
        default_factory=lambda: RecordingCluster([FLAG_OVERRIDES, CONFIGURATIONS])
    )
    now: datetime = NOW

    def flags(self, name: str = "checkout", writer: str = "", **more: Any) -> None:
        """Flags of an object that a FlagSet has written, if `writer` names one."""
        self.document({"flags": {"pay": {**FLAG, **more}}}, name, written_by(writer) if writer else {})

    def document(
        self, document: dict[str, Any], name: str = "checkout", meta: dict[str, Any] | None = None
    ) -> None:
        self.cluster.put(manifest("FeatureFlagConfiguration", name, {"flagSpec": document}, **(meta or {})))

    def override(self, name: str = "pay-off", created: str = "2026-01-01T00:00:00Z", **spec: Any) -> None:
        wanted = {key: value for key, value in {**SPEC, **spec}.items() if value is not None}
        self.cluster.put(manifest("FlagOverride", name, wanted, creationTimestamp=created))

    async def settle(self, name: str = "pay-off") -> Settled:
        return await self._settle(FlagOverrideReconciler(self.cluster.objects), "FlagOverride", name)

    async def configuration(self) -> Settled:
        reconciler = ConfigurationReconciler(self.cluster.objects, ClaimIndex())
        return await self._settle(reconciler, "FeatureFlagConfiguration", "checkout")

    async def _settle(self, reconciler: Reconciler, kind: str, name: str) -> Settled:
        resource = self.cluster.the(kind, name)
        settled = (await take_turn(reconciler, resource, self.now)).settled
        self.cluster.set_status(resource, settled.status)
        return settled

    @property
    def progress(self) -> Progress:
        """What is in force for the object `checkout`."""
        target = self.cluster.the("FeatureFlagConfiguration", "checkout")
        return override_progress(self.cluster.objects, target, self.now.timestamp())

    def value(self) -> object:
        """The value of the flag that everybody gets of the object `checkout`."""
        target = self.cluster.the("FeatureFlagConfiguration", "checkout")
        flag_set = delivery_of(target, lambda _: None, self.progress).flag_set
        return resolve(compile_flag_set(flag_set), "pay", None, {}, int(self.now.timestamp())).value


def message(settled: Settled) -> str:
    return read_condition(settled.status)[2]


def ready(settled: Settled) -> tuple[str, str]:
    return read_condition(settled.status)[:2]


async def test_an_override_in_force_says_what_it_hides_and_waits_for_its_end() -> None:
    world = OverriddenCluster()
    world.flags(targeting={"if": [True, "on"]})
    world.override()
    settled = await world.settle()
    assert ready(settled) == ("True", "Active")
    assert settled.status["state"] == "Active"
    assert settled.status["hides"] == 'default variant "on", with a rule'
    assert settled.requeue_after == 7200


async def test_an_override_that_has_ended_is_ready_and_waits_for_nothing() -> None:
    world = OverriddenCluster(now=NOW + timedelta(hours=2))
    world.flags()
    world.override()
    settled = await world.settle()
    assert (ready(settled), settled.status["state"]) == (("True", "Expired"), "Expired")
    assert settled.requeue_after is None


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"flagSetRef": {"name": "other"}}, "UnknownFlagSet"),
        ({"flag": "payy"}, "UnknownFlag"),
        ({"variant": "of"}, "UnknownVariant"),
        ({"audience": {"ends_wiht": [{"var": "email"}, "@a"]}}, "InvalidAudience"),
        ({"variant": None}, "InvalidSpec"),
        ({"expiresAt": "soon"}, "InvalidSpec"),
    ],
)
async def test_an_override_that_cannot_be_in_force_says_why(spec: dict[str, Any], reason: str) -> None:
    world = OverriddenCluster()
    world.flags()
    world.override(**spec)
    settled = await world.settle()
    assert ready(settled) == ("False", reason)
    assert settled.status["state"] == reason


async def test_an_audience_gets_its_variant_of_a_flag_that_is_disabled_for_everybody_else() -> None:
    world = OverriddenCluster()
    world.flags(state="DISABLED")
    world.override(audience={"==": [{"var": "country"}, "NL"]})
    settled = await world.settle()
    assert (ready(settled), settled.status["hides"]) == (("True", "Active"), "disabled")


async def test_of_two_overrides_the_later_one_hides_the_earlier_until_it_ends() -> None:
    world = OverriddenCluster()
    world.flags(writer="shop-flags")
    world.override("b-older", "2025-12-31T23:00:00Z")
    world.override(
        "a-younger", flagSetRef={"name": "shop-flags"}, variant="on", expiresAt="2026-01-01T01:00:00Z"
    )
    older, younger = await world.settle("b-older"), await world.settle("a-younger")
    assert ready(older) == ("True", "Hidden")
    assert message(older) == (
        'FlagOverride a-younger is later and covers everybody: flag "pay" is "on" until 2026-01-01T01:00:00Z'
    )
    assert [(event.reason, event.severity) for event in older.events] == [("Hidden", "Warning")]
    assert ready(younger) == ("True", "Active")
    assert message(younger) == (
        'flag "pay" is "on": INC-1: payments fail; over FlagOverride b-older ("off" until '
        "2026-01-01T02:00:00Z); in checkout"
    )
    assert older.requeue_after == 3600
    world.now += timedelta(hours=1)
    assert ready(await world.settle("b-older")) == ("True", "Active")


async def test_an_earlier_override_stays_in_force_outside_of_the_audience_of_a_later_one() -> None:
    world = OverriddenCluster()
    world.flags()
    world.override("older", "2025-12-31T23:00:00Z")
    world.override("younger", variant="on", audience={"==": [{"var": "country"}, "NL"]})
    older, younger = await world.settle("older"), await world.settle("younger")
    assert (ready(older), ready(younger)) == (("True", "Active"), ("True", "Active"))
    assert 'below FlagOverride younger ("on" for an audience until' in message(older)
    conditions = (await world.configuration()).status["conditions"]
    overridden = next(one for one in conditions if one["type"] == "OverrideActive")
    assert "by FlagOverride younger" in overridden["message"]
    assert "by FlagOverride older" in overridden["message"]


ON_ALONE = {**FLAG, "variants": {"on": 1}}
GONE: dict[str, Any] = {
    "another value": {"flags": {"pay": {**FLAG, "variants": {"on": 1, "off": 7}}}},
    "no such variant": {"flags": {"pay": ON_ALONE}},
    "no such flag": {"flags": {"other": FLAG}},
    "disabled": {"flags": {"pay": {**ON_ALONE, "state": "DISABLED"}}},
}


@pytest.mark.parametrize("change", GONE)
async def test_an_override_keeps_its_value_whatever_becomes_of_the_flag(change: str) -> None:
    world = OverriddenCluster()
    world.flags()
    world.override()
    kept = (await world.settle()).status["kept"]
    assert kept == {"flagSet": "checkout", "flag": "pay", "variant": "off", "value": "0"}
    world.document(GONE[change])
    settled = await world.settle()
    assert (ready(settled), settled.status["kept"]) == (("True", "Active"), kept)
    assert world.value() == 0
    world.now += timedelta(hours=2)
    ended = await world.settle()
    assert (ended.status["state"], "kept" in ended.status) == ("Expired", False)


async def test_a_disabled_flag_stays_overridden_when_it_is_deleted_and_comes_back() -> None:
    world = OverriddenCluster()
    world.flags()
    world.override(variant=None, disabled=True)
    await world.settle()
    world.document(GONE["no such flag"])
    assert ready(await world.settle()) == ("True", "Active")
    world.flags()
    assert ready(await world.settle()) == ("True", "Active")
    assert world.value() is ABSENT


async def test_what_an_override_keeps_does_not_outlive_its_variant() -> None:
    world = OverriddenCluster()
    world.flags()
    world.override()
    await world.settle()
    world.override(reason="INC-2", expiresAt="2026-01-01T03:00:00Z")
    world.document(GONE["no such variant"])
    assert ready(await world.settle()) == ("True", "Active")
    world.override(variant="gone")
    assert ready(await world.settle()) == ("False", "UnknownVariant")


async def test_the_value_of_a_flag_with_words_of_a_secret_is_not_kept_in_the_status() -> None:
    world = OverriddenCluster()
    world.flags(metadata={"flagstaff.dev/secret": True})
    world.override()
    settled = await world.settle()
    assert (ready(settled), "kept" in settled.status) == (("True", "Active"), False)


async def test_a_label_without_an_owner_reference_makes_no_object_one_of_a_flag_set() -> None:
    world = OverriddenCluster()
    world.document({"flags": {}}, "forged", {"labels": {LABEL: "shop-flags"}})
    world.override(flagSetRef={"name": "shop-flags"})
    assert ready(await world.settle()) == ("False", "UnknownFlagSet")


async def test_an_object_of_a_flag_set_that_does_not_prune_is_known_by_its_field_manager() -> None:
    world = OverriddenCluster()
    managed = [{"manager": manager_of(ObjectKey(KIND, "shop", "shop-flags")), "operation": "Apply"}]
    meta = {"labels": {LABEL: "shop-flags"}, "managedFields": managed}
    world.document({"flags": {"pay": FLAG}}, "written", meta)
    world.override(flagSetRef={"name": "shop-flags"})
    assert ready(await world.settle()) == ("True", "Active")


async def test_an_override_of_a_flag_set_says_which_of_its_objects_have_the_flag() -> None:
    world = OverriddenCluster()
    world.flags("checkout-v2", "checkout")
    world.document({"flags": {}}, "checkout-v1", written_by("checkout"))
    world.override()
    assert message(await world.settle()) == (
        'flag "pay" is "off": INC-1: payments fail; in checkout-v2; not in FeatureFlagConfiguration '
        'checkout-v1: the set has no flag "pay"'
    )


async def test_beyond_the_bound_the_newest_override_waits_until_another_ends() -> None:
    world, newest = OverriddenCluster(), f"o{OVERRIDES.most}"
    world.document({"flags": {f"f{number}": FLAG for number in range(OVERRIDES.most + 1)}})
    for number in range(OVERRIDES.most + 1):
        created = f"2025-12-31T00:{number // 60:02}:{number % 60:02}Z"
        end = "2026-01-01T01:00:00Z" if number == 5 else SPEC["expiresAt"]
        world.override(f"o{number:03}", created, flag=f"f{number}", expiresAt=end)
    settled = await world.settle(newest)
    assert (ready(settled), settled.requeue_after) == (("False", "TooManyOverrides"), 3600)
    assert newest not in {override.name for override in world.progress.overrides}
    world.now += timedelta(hours=1)
    assert ready(await world.settle(newest)) == ("True", "Active")
    assert newest in {override.name for override in world.progress.overrides}


async def test_of_many_overrides_of_one_flag_the_latest_are_in_force() -> None:
    world = OverriddenCluster()
    world.flags()
    for number in range(MOST_LAYERS + 1):
        audience = {"==": [{"var": "group"}, number]}
        world.override(f"o{number:02}", f"2025-12-31T00:00:{number:02}Z", audience=audience)
    assert ready(await world.settle("o00")) == ("False", "TooManyOverrides")
    assert ready(await world.settle("o01")) == ("True", "Active")
    assert ready(await world.settle(f"o{MOST_LAYERS}")) == ("True", "Active")


async def test_an_override_that_does_not_fit_is_no_rival() -> None:
    world = OverriddenCluster()
    world.flags()
    world.override("older", "2025-12-31T23:00:00Z", variant="of")
    world.override()
    assert ready(await world.settle()) == ("True", "Active")


async def test_the_object_tells_of_the_override_with_a_condition_and_events_until_it_ends() -> None:
    world = OverriddenCluster()
    world.flags()
    world.override()
    started = await world.configuration()
    overridden = next(one for one in started.status["conditions"] if one["type"] == "OverrideActive")
    assert overridden["message"] == (
        'flag "pay" is "off" until 2026-01-01T02:00:00Z by FlagOverride pay-off: INC-1: payments fail'
    )
    assert [event.reason for event in started.events] == ["OverrideActive"]
    assert started.requeue_after == 7200
    assert not (await world.configuration()).events
    world.now += timedelta(hours=2)
    ended = await world.configuration()
    assert [event.reason for event in ended.events] == ["OverrideEnded"]
    assert all(one["type"] != "OverrideActive" for one in ended.status["conditions"])
    assert ended.status["digest"] != started.status["digest"]
