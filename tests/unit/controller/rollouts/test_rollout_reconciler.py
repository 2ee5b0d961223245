"""FlagRollouts over a cluster in memory: what is written, what is served, and a controller that is killed."""

from __future__ import annotations

from typing import Any

import pytest

from controller.runtime.shards import Shard
from tests.statuses import find, read_condition
from tests.worlds.rollouts import ClusterWorld, KilledError, definition

OLD, NEW = {"pay": definition("off")}, {"pay": definition("new")}
METRICS = {
    "interval": "1m",
    "failureLimit": 2,
    "metrics": [{"name": "errors", "templateRef": {"name": "t"}, "thresholdRange": {"max": 1}}],
}


async def under_way(**spec: Any) -> ClusterWorld:
    """A world in which the first step is served."""
    world = ClusterWorld()
    world.commit(OLD)
    world.rollout(**spec)
    await world.settle()
    world.commit(NEW, "main@sha1:2")
    await world.settle()
    return world


def ready(world: ClusterWorld, name: str = "pay") -> tuple[str, str, str]:
    return read_condition(world.cluster.the("FlagRollout", name).status)


async def test_promoted_definitions_have_the_label_of_the_rollouts_shard() -> None:
    world = ClusterWorld(shard=Shard.of("team in (shop, pay)", ()))
    world.commit(OLD)
    for team in ("shop", "pay"):
        world.rollout(labels={"team": team, "app": "x"})
        await world.settle()
        (name,) = world.shards
        labels = world.cluster.the("FlagShard", name).labels
        assert labels == {"flagstaff.dev/rollout": "pay", "team": team}


async def test_a_new_rollout_keeps_what_is_served_as_promoted() -> None:
    world = ClusterWorld()
    world.commit({**OLD, "other": definition()})
    world.rollout()
    await world.settle()
    (name,) = world.shards
    shard = world.cluster.the("FlagShard", name)
    assert shard.spec["flagSpec"]["flags"].keys() == {"pay"}
    assert [owner["kind"] for owner in shard.owners] == ["FlagRollout", "FeatureFlagConfiguration"]
    assert world.status().phase == "Idle"
    assert ready(world)[:2] == ("True", "Idle")
    # The shard is there before the status that names it.
    writes = world.cluster.writes
    assert writes.index(f"apply FlagShard/{name}") < writes.index("status FlagRollout/pay")


async def test_a_change_goes_step_by_step_and_is_promoted() -> None:
    world = await under_way()
    assert world.candidate().step_text == "1/2"
    candidate = world.candidate()
    assert candidate.revision == "main@sha1:2"
    counts = world.users()
    assert 5 < counts["new"] < 40
    assert ready(world)[:2] == ("False", "Progressing")
    await world.wait(600)
    assert 70 < world.users()["new"] < 130
    await world.wait(600)
    assert world.users() == {"new": 200}
    status = world.status()
    assert (status.phase, status.candidates) == ("Succeeded", ())
    assert status.promoted is not None
    assert [entry.outcome for entry in status.history] == ["Promoted"]
    # The definitions that were promoted before are removed once nobody reads them.
    await world.wait(120)
    assert world.shards == [status.promoted.shard]


async def test_nothing_is_written_while_nothing_changes() -> None:
    world = await under_way()
    world.cluster.take_writes()
    for _ in range(5):
        # Flux applies the same manifests again.
        world.commit(NEW, "main@sha1:2")
        world.rollout()
        await world.settle()
    assert world.cluster.take_writes() == []


async def test_several_flags_of_one_commit_are_one_candidate_and_new_ones_are_served_at_once() -> None:
    world = ClusterWorld()
    flags = {"pay": definition(), "pay-fast": definition(), "other": definition()}
    world.commit(flags)
    world.rollout()
    await world.settle()
    world.commit(
        {
            "pay": definition("new"),
            "pay-fast": definition("on"),
            "other": definition("on"),
            "pay-2": definition(),
        }
    )
    await world.settle()
    assert world.candidate().flags.keys() == {"pay", "pay-fast"}
    assert world.users("other") == {"on": 200}
    assert world.users("pay-2") == {"off": 200}
    # Both change for the same users.
    assert world.users("pay")["new"] == world.users("pay-fast")["on"]


async def test_a_failed_check_rolls_back_for_everybody() -> None:
    world = await under_way(analysis=METRICS)
    world.answers.verdict = "Fail"
    await world.wait(120)
    assert (world.candidate().phase, world.candidate().reason) == ("Failed", "FailureLimit")
    assert world.users() == {"off": 200}
    state, reason, message = ready(world)
    assert (state, reason) == ("False", "RolledBack")
    assert message.startswith("main@sha1:2 (pay) is rolled back: 2 checks failed: metric errors is 0.5")
    assert find(world.cluster.the("FlagRollout", "pay").status, "Stalled") is not None
    # One Event tells it.
    assert [said for said in world.said if "rolled back" in said] == [f"RolledBack: {message}"]
    (step, _) = world.answers.steps
    assert (step.flags, step.variant, step.target, step.share) == (("pay",), "new", "checkout", 10.0)
    # A revert recovers.
    world.commit(OLD, "main@sha1:3")
    await world.settle()
    assert world.status().phase == "Idle"
    assert ready(world)[0] == "True"


async def test_a_revert_a_disabled_and_a_deleted_flag_are_immediate() -> None:
    world = await under_way()
    world.commit(OLD, "main@sha1:3")
    assert world.users() == {"off": 200}
    world = await under_way()
    before = world.users()
    world.commit({"pay": definition("new", state="DISABLED")}, "main@sha1:3")
    assert world.users() == {"-": 200}
    await world.wait(7200)
    assert (world.candidate().step_text, world.candidate().reason) == ("1/2", "FlagDisabled")
    world.commit(NEW, "main@sha1:4")
    assert world.users() == before
    world = await under_way()
    world.commit({"other": definition()}, "main@sha1:3")
    assert "pay" not in world.delivered_flags().flags
    await world.wait(7200)
    assert (world.candidate().step_text, world.candidate().reason) == ("1/2", "FlagAbsent")
    world.commit(NEW, "main@sha1:4")
    assert world.users() == before


MANY = {"if": [{"or": [{"==": [{"var": "email"}, f"user-{number}"]} for number in range(1_900)]}, "new"]}


@pytest.mark.parametrize(
    ("new", "reason", "text"),
    [
        (
            definition("new", variants={"off": "off", "on": "ON", "new": "new"}),
            "VariantValueChanged",
            "changes the value of a variant",
        ),
        (definition("new", variants={"new": 1}), "TypeChanged", "changes its type"),
        (definition("a&b", variants={"a&b": "new"}), "VariantNameEscaped", "a default variant whose name"),
        (definition("new", targeting=MANY), "RuleTooLarge", "a rule that is too large"),
    ],
)
async def test_what_cannot_be_served_beside_the_promoted_definition_is_held_with_its_reason(
    new: dict[str, Any], reason: str, text: str
) -> None:
    world = ClusterWorld()
    world.commit(OLD)
    world.rollout()
    await world.settle()
    world.commit({"pay": new})
    await world.settle()
    assert world.status().phase == "Pending"
    assert ready(world)[1] == reason
    assert 'flag "pay"' in ready(world)[2]
    assert text in ready(world)[2]
    assert world.users() == {"off": 200}
    world.annotate(promote=world.candidate().digest)
    await world.settle()
    assert world.status().phase == "Succeeded"
    assert world.users() == {new["defaultVariant"]: 200}


@pytest.mark.parametrize("audience", [{"ends_wiht": [{"var": "email"}, "@a"]}, {"!": [{"$ref": "staff"}]}])
async def test_an_audience_that_would_fail_for_everybody_holds_the_change(audience: dict[str, Any]) -> None:
    world = await under_way(steps=[{"audience": audience, "minDuration": "10m"}, {"share": 10}])
    assert world.users() == {"off": 200}
    assert ready(world)[:2] == ("False", "InvalidAudience")
    world.rollout(steps=[{"audience": {"==": [{"var": "a"}, 1]}, "minDuration": "10m"}, {"share": 10}])
    await world.settle()
    assert world.candidate().step_text == "1/2"


async def test_a_variant_that_a_computed_result_would_give_to_everybody_is_held() -> None:
    by_user = {"var": "targetingKey"}
    world = ClusterWorld()
    world.commit({"pay": definition("off", targeting=by_user)})
    world.rollout()
    await world.settle()
    before = world.users()
    variants = {"off": "off", **{f"user-{number}": "new" for number in range(200)}}
    world.commit({"pay": definition("off", variants=variants, targeting=by_user)}, "main@sha1:2")
    await world.settle()
    assert world.users() == before
    assert ready(world)[:2] == ("False", "VariantNotInBoth")
    assert 'flag "pay" may give users a variant that only the other definition has' in ready(world)[2]


async def test_of_two_rollouts_for_a_flag_the_younger_waits_for_a_change() -> None:
    world = ClusterWorld()
    world.commit(OLD)
    world.rollout("younger", "2026-02-01T00:00:00Z", flags=["p*"])
    world.rollout("pay")
    await world.settle()
    world.commit(NEW)
    await world.settle()
    assert ready(world, "younger")[1] == "Conflict"
    assert world.status("pay").phase == "Progressing"
    world.rollout("younger", "2026-02-01T00:00:00Z", flags=["q*"])
    await world.settle()
    assert ready(world, "younger")[:2] == ("True", "Idle")


@pytest.mark.parametrize(("seconds", "served"), [(1200, {"new": 200}), (0, {"off": 200})])
async def test_once_the_older_rollout_is_deleted_the_younger_keeps_what_everybody_has(
    seconds: float, served: dict[str, int]
) -> None:
    world = ClusterWorld()
    other = {"x": definition(), "pay-2": definition()}
    world.commit({**OLD, **other})
    world.rollout("older", flags=["x"])
    world.rollout("pay", "2026-02-01T00:00:00Z")
    await world.settle()
    world.rollout("older", flags=["x", "pay"])
    await world.settle()
    assert ready(world)[1] == "Conflict"
    world.commit({**NEW, **other}, "main@sha1:2")
    await world.wait(seconds)
    assert world.users()["new"] >= served.get("new", 1)
    world.cluster.remove("FlagRollout", "older")
    # At once, before anything is reconciled.
    assert world.users() == served
    await world.settle()
    assert [one.step_text for one in world.status().candidates] == ([] if "new" in served else ["1/2"])
    assert world.users("pay-2") == {"off": 200}
    await world.wait(3600)
    # Each rollout's earlier definitions are removed; those of the deleted one only its other owner has.
    named = world.status().promoted
    assert named is not None
    assert [name for name in world.shards if name.startswith("pay-")] == [named.shard]


async def test_promoted_definitions_of_an_earlier_rollout_of_this_name_are_removed_when_they_are_old() -> (
    None
):
    world = ClusterWorld()
    world.commit(OLD)
    world.rollout()
    await world.settle()
    (name,) = world.shards
    world.cluster.remove("FlagRollout", "pay")
    world.rollout()
    await world.settle()
    assert world.shards == [name]
    assert world.cluster.the("FlagShard", name).is_owned_by(world.cluster.the("FlagRollout", "pay"))
    world.commit(NEW, "main@sha1:2")
    await world.wait(1200)
    assert world.status().phase == "Succeeded"
    await world.wait(120)
    assert name not in world.shards


async def test_a_suspended_rollout_changes_nothing() -> None:
    world = await under_way()
    await world.wait(300)
    world.rollout(suspend=True)
    before = world.users()
    await world.wait(7200)
    assert world.users() == before
    assert world.candidate().reason == "Suspended"
    # The clock of the step stood meanwhile.
    world.rollout()
    await world.wait(299)
    assert world.candidate().step_text == "1/2"
    await world.wait(1)
    assert world.candidate().step_text == "2/2"


async def test_without_its_flag_set_it_waits() -> None:
    world = ClusterWorld()
    world.rollout()
    await world.settle()
    assert ready(world)[:2] == ("False", "UnknownFlagSet")


async def test_promoted_definitions_that_are_gone_are_a_matter_for_people() -> None:
    world = await under_way()
    for name in world.shards:
        world.cluster.remove("FlagShard", name)
    world.start()
    await world.settle()
    assert ready(world)[1] == "PromotedShardMissing"


async def test_webhooks_are_told_of_the_candidate() -> None:
    hook = {"name": "gate", "type": "confirm-rollout", "url": "https://h.example/"}
    world = ClusterWorld()
    world.answers.hooks["gate"] = "Fail"
    world.commit(OLD)
    world.rollout(webhooks=[hook])
    await world.settle()
    world.commit(NEW)
    await world.settle()
    candidate = world.candidate()
    (call,) = world.answers.calls
    assert (call.phase, call.checksum, call.flags) == ("Pending", candidate.digest, ("pay",))
    assert world.users() == {"off": 200}


async def test_a_flag_with_an_error_is_not_taken_for_deleted_and_a_refused_set_for_empty() -> None:
    world = await under_way()
    await world.wait(1200)
    promoted = world.status().promoted
    for broken in ({"pay": definition("nobody-has-this")}, {"pay": {"state": "on"}}, "nothing"):
        world.commit(broken, "main@sha1:3")
        await world.settle()
        assert world.status().promoted == promoted
    world.commit({"pay": definition("on")}, "main@sha1:4")
    assert world.users() == {"new": 200}
    await world.settle()
    assert world.candidate().step_text == "1/2"


# -- a controller that is killed


async def whole_life(world: ClusterWorld) -> None:
    """One change that is promoted, one that is rolled back by its checks, and a revert."""
    world.commit(OLD)
    world.rollout(analysis=METRICS)
    await world.wait(60)
    world.commit(NEW, "main@sha1:2")
    await world.wait(3600)
    world.answers.verdict = "Fail"
    world.commit({"pay": definition("on")}, "main@sha1:3")
    await world.wait(3600)
    world.commit(NEW, "main@sha1:4")
    await world.wait(3600)


class Resuming(ClusterWorld):
    """A world in which another controller takes over from one that is killed."""

    kills = 0

    async def turn(self) -> bool:
        try:
            return await super().turn()
        except KilledError:
            self.kills += 1
            self.cluster.writes_left = None
            self.start()
            return True


def end_state(world: ClusterWorld) -> list[Any]:
    """What is left in the end, and what users get."""
    status = world.status()
    promoted = status.promoted
    assert promoted is not None
    history = [(entry.outcome, entry.revision, entry.reason) for entry in status.history]
    return [status.phase, promoted.digest, history, status.recent_digests, world.shards, world.users()]


async def test_a_controller_that_is_killed_at_any_write_leaves_the_next_one_the_same_end() -> None:
    wanted = ClusterWorld()
    await whole_life(wanted)
    assert end_state(wanted)[0] == "Idle"
    writes = wanted.cluster.writes
    assert {write.split("/")[0] for write in writes} == {
        "apply FlagShard", "delete FlagShard", "status FlagRollout", "status FeatureFlagConfiguration",
    }  # fmt: skip
    for number, write in enumerate(writes):
        world = Resuming()
        world.cluster.writes_left = number
        await whole_life(world)
        assert world.kills == 1, write
        assert end_state(world) == end_state(wanted), write


# -- candidates


BOTH = {"pay": definition("off"), "pay-fast": definition("off")}


async def two_under_way(**spec: Any) -> ClusterWorld:
    """A world in which a change of pay is at its first step."""
    world = ClusterWorld()
    world.commit(BOTH)
    world.rollout(**spec)
    await world.settle()
    world.commit({**BOTH, "pay": definition("new")}, "main@sha1:2")
    await world.settle()
    return world


async def test_a_commit_to_another_flag_moves_nobody_with_and_without_a_controller() -> None:
    world = await two_under_way()
    before = world.users()
    world.commit({"pay": definition("new"), "pay-fast": definition("on")}, "main@sha1:3")
    # No controller has seen it.
    assert world.users() == before
    assert world.users("pay-fast") == {"off": 200}
    await world.wait(60)
    assert world.users() == before
    assert (world.candidate("pay").revision, world.candidate("pay-fast").revision) == (
        "main@sha1:2",
        "main@sha1:3",
    )
    await world.wait(540)
    # Each has its own clock.
    assert [world.candidate(key).step_text for key in ("pay", "pay-fast")] == ["2/2", "2/2"]


async def test_a_promotion_moves_the_flags_of_its_candidate_alone() -> None:
    world = await two_under_way()
    await world.wait(600)
    world.commit({"pay": definition("new"), "pay-fast": definition("on")}, "main@sha1:3")
    await world.settle()
    share = world.users("pay-fast")
    await world.wait(599)
    assert world.users("pay") != {"new": 200}
    await world.wait(1)
    assert world.users("pay") == {"new": 200}
    assert share["on"] < world.users("pay-fast")["on"] < 200
    assert [one.outcome for one in world.status().history] == ["Promoted"]


async def test_an_aborted_definition_does_not_come_back_with_another_flags_commit() -> None:
    world = await two_under_way()
    world.annotate(abort=world.candidate().digest)
    await world.settle()
    world.commit({"pay": definition("new"), "pay-fast": definition("on")}, "main@sha1:3")
    await world.wait(7200)
    assert world.users() == {"off": 200}
    assert world.users("pay-fast") == {"on": 200}
    assert world.candidate().phase == "Failed"


async def test_behind_an_override_nothing_goes_on_and_its_end_exposes_nobody_else() -> None:
    world = await under_way()
    exposed = world.users()
    world.override("off", minutes=30)
    assert world.users() == {"off": 200}
    await world.wait(1799)
    assert (world.candidate().step_text, world.candidate().reason) == ("1/2", "OverrideActive")
    await world.wait(7200)
    assert world.users() == {"off": 200}
    assert world.candidate().reason == "OverrideEnded"
    (held,) = [said for said in world.said if "has ended" in said]
    assert f"flagstaff rollout resume pay --candidate {world.candidate().digest[7:19]} -n shop" in held
    world.annotate(resume=world.candidate().digest[7:19])
    await world.wait(599)
    assert world.users() == exposed
    await world.wait(1)
    assert world.users()["new"] > 70


async def test_a_boolean_that_goes_off_and_on_again_waits_for_its_approval_each_time() -> None:
    steps = [{"share": 10, "approval": "Required"}]
    world = await under_way(steps=steps, promotion="Manual", rollbackWindow={"revisions": 3})
    variants = ["new", "off", "new", "off"]
    for number, variant in enumerate(variants):
        world.commit({"pay": definition(variant)}, f"main@sha1:{number + 2}")
        await world.wait(7200)
        assert world.users() != {variant: 200}
        while world.status().candidates:
            world.annotate(approve=f"{world.candidate().digest}/{world.candidate().gate}")
            await world.settle()
        assert world.users() == {variant: 200}


async def test_an_audience_is_kept_with_what_it_refers_to() -> None:
    steps = [{"audience": {"$ref": "staff"}, "minDuration": "10m"}, {"share": 10, "minDuration": "10m"}]

    def flags(variant: str, staff: str) -> dict[str, Any]:
        rule = {"in": [{"var": "targetingKey"}, [f"user-{number}" for number in staff]]}
        return {"flags": {"pay": definition(variant)}, "$evaluators": {"staff": rule}}

    world = ClusterWorld()
    world.commit_document(flags("off", "123"))
    world.rollout(steps=steps)
    await world.settle()
    world.commit_document(flags("new", "123"))
    await world.settle()
    assert world.users() == {"new": 3, "off": 197}
    world.commit_document(flags("new", "45678"))
    await world.wait(300)
    assert world.users() == {"new": 3, "off": 197}
    assert world.candidate().step_text == "1/2"


async def test_what_stops_a_change_is_said_with_its_cause() -> None:
    world = await under_way(analysis={**METRICS, "consecutiveErrorLimit": 1})
    world.answers.verdict = "Error"
    await world.wait(60)
    assert (world.candidate().reason, world.candidate().message) == ("CheckErrors", "metric errors is 0.5")
