"""What evaluators are sent of flags that a FlagRollout rolls out, on the real API server. The status of the
FlagRollout is written by the test: the controller is not there, or the FlagRollout is suspended.
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from controller.api.flagrollout import PROMOTE
from controller.runtime.clock import now
from evaluator.flags.candidates import candidate_digest, changed_flags
from evaluator.host.times import timestamp
from tests.clients.asking import ask_flag
from tests.cluster.controllers import controller
from tests.cluster.fleets import followed_source
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.pods import PodProcess, pods
from tests.cluster.proxies import proxy
from tests.cluster.spines import spine_in
from tests.worlds.flags import flag_set_of, flags
from tests.worlds.objects import condition, configuration, manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane
    from tests.cluster.proxies import ProxyProcess

pytestmark = [pytest.mark.timeout(300)]
OLD, NEW, NEXT = (json.loads(flags(pay=pay, other=other)) for pay, other in
                  (("off", "off"), ("on", "on"), ("off", "on")))  # fmt: skip
NEXT["flags"]["pay"]["targeting"] = {"if": [True, "on"]}
"""Three commits: the second changes two flags, of which `pay` is rolled out."""
USERS: Final = 40


def changes(document: dict[str, Any]) -> dict[str, str]:
    desired, promoted = (flag_set_of(one) for one in (document, OLD))
    return dict(changed_flags(desired, promoted, ("pay*",)))


CHANGES: Final = changes(NEW)
CANDIDATE: Final = candidate_digest(CHANGES)
PENDING: Final = {"digest": CANDIDATE, "flags": CHANGES, "phase": "Pending"}
HALF: Final = {
    **PENDING, "phase": "Progressing", "step": 0, "stepText": "1/2", "share": 50, "salt": "checkout/0a1b2c3d",
}  # fmt: skip
EVERYONE: Final = {**HALF, "phase": "Promoting"}
FAILED: Final = {**PENDING, "phase": "Failed"}


class Shop:
    """A namespace with a flag set, a FlagRollout of it, and an evaluator."""

    def __init__(self, space: Namespace, pod: PodProcess) -> None:
        self.space = space
        self.pod = pod

    def commit(self, document: dict[str, Any]) -> None:
        self.space.apply(configuration(flagSpec=document))

    def name_rollout(self) -> None:
        """What the reconciler of the object with the flags writes before a FlagSet applies a change."""
        entry = {"name": "checkout", "shard": "checkout-promoted", "phase": "Idle"}
        body = json.dumps({"status": {"rollouts": [entry]}})
        self.space.kubectl("patch", "ffc", "flags", "--subresource=status", "--type=merge", "-p", body)

    def publish(self, *candidates: dict[str, Any]) -> None:
        """What the reconciler writes in one step."""
        promoted = {"digest": "sha256:1", "shard": "checkout-promoted"}
        phase = candidates[0]["phase"] if candidates else "Idle"
        status = {"promoted": promoted, "phase": phase, "candidates": candidates}
        body = json.dumps({"status": status})
        self.space.kubectl("patch", "froll", "checkout", "--subresource=status", "--type=merge", "-p", body)

    def answers(self) -> set[tuple[object, object]]:
        """(value, arm) of the flag `pay` of all users."""
        return set(self.by_user())

    def ask(self, key: str, user: str) -> tuple[object, object]:
        with suppress(OSError):
            answer = ask_flag(self.pod.port("ofrep"), key, targetingKey=user)
            return answer.get("value"), answer.get("metadata", {}).get("flagstaff.dev/rollout-arm")
        return None, None

    def by_user(self) -> list[tuple[object, object]]:
        return [self.ask("pay", f"user-{number}") for number in range(USERS)]

    def wait(self, values: set[object]) -> None:
        """Until users are answered with these values of `pay`."""
        within(lambda: {value for value, _ in self.answers()} == values, lambda: str(self.answers()))

    def wait_commit(self, *, other: bool = True) -> None:
        """Until the evaluator has a commit, by the flag that is not rolled out."""
        within(lambda: self.ask("other", "user-1")[0] is other)


@pytest.fixture(scope="module")
def delivering(spare: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    with proxy(spare, tmp_path_factory.mktemp("rollouts")) as process:
        yield process


@pytest.fixture
def shop(delivering: ProxyProcess, spare: Plane, spare_namespace: str, tmp_path: Path) -> Iterator[Shop]:
    space = Namespace(spare, spare_namespace)
    space.apply(configuration(flagSpec=OLD))
    source = followed_source(delivering.target, space.name)
    with pods(spare, space.name, source, tmp_path / "pods", "web-1") as [pod]:
        made = Shop(space, pod)
        made.wait({False})
        yield made


def promoted_shard() -> dict[str, Any]:
    document = {"flags": {"pay": OLD["flags"]["pay"]}}
    return manifest("FlagShard", "checkout-promoted", {"digest": "sha256:1", "flagSpec": document})


def rollout() -> dict[str, Any]:
    steps = [{"share": 50}, {"share": 100}]
    spec = {"flagSetRef": {"name": "flags"}, "flags": ["pay*"], "steps": steps, "suspend": True}
    return manifest("FlagRollout", "checkout", spec)


def test_a_change_reaches_users_step_by_step_while_the_controller_is_not_there(
    shop: Shop, tmp_path: Path
) -> None:
    shop.space.apply(promoted_shard(), rollout())
    shop.publish()
    shop.commit(NEW)
    shop.wait_commit()
    assert shop.answers() == {(False, "baseline")}
    shop.publish(HALF)
    shop.wait({True, False})
    assert shop.answers() == {(True, "candidate"), (False, "baseline")}
    assert shop.ask("pay", "") == (False, "excluded")
    plane, space = shop.space.plane, shop.space
    with (
        proxy(plane, tmp_path / "proxy", name="second") as later,
        pods(plane, space.name, followed_source(later.target, space.name), tmp_path / "more", "web-2") as [
            pod
        ],
    ):
        second = Shop(space, pod)
        second.wait({True, False})
        assert second.by_user() == shop.by_user()
    shop.publish(EVERYONE)
    shop.wait({True})
    shop.publish(FAILED)
    shop.wait({False})


RULES: Final = {"$evaluators": {"staff": {"starts_with": [{"var": "targetingKey"}, "user-1"]}}}
OTHER_RULES: Final = {"$evaluators": {"staff": {"starts_with": [{"var": "targetingKey"}, "user-2"]}}}
STEP: Final = {**HALF, "share": 30, "audiences": [RULES["$evaluators"]["staff"]]}


V3: Final = {"metadata": {"flagstaff.dev/bucketing": "v3"}}
BESIDE: Final[dict[str, list[dict[str, Any]]]] = {
    "another flag of the rollout": [json.loads(flags(pay="on", pays="on", other="off")) | RULES],
    "the shared rule of the audience": [json.loads(flags(pay="on", pays="off", other="off")) | OTHER_RULES],
    "the generation of bucketing": [json.loads(flags(pay="on", other="off")) | RULES | V3],
    "the flag is away for a while": [
        json.loads(flags(pays="off", other="off")) | RULES,
        json.loads(flags(pay="on", other="on")) | RULES,
    ],
}


@pytest.mark.long
@pytest.mark.parametrize("change", BESIDE)
def test_what_changes_beside_a_step_moves_none_of_its_users_while_the_controller_is_not_there(
    shop: Shop, change: str
) -> None:
    shard = promoted_shard()
    shard["spec"]["flagSpec"]["flags"]["pays"] = OLD["flags"]["pay"]
    shop.space.apply(shard, rollout())
    shop.publish()
    shop.commit(json.loads(flags(pay="on", pays="off", other="on")) | RULES)
    shop.wait_commit()
    shop.publish(STEP)
    shop.wait({True, False})
    users = shop.by_user()
    assert {shop.ask("pay", f"user-1{number}")[0] for number in range(10)} == {True}
    for document in BESIDE[change]:
        shop.commit(document)
        shop.wait_commit(other=document["flags"]["other"]["defaultVariant"] == "on")
    assert shop.by_user() == users
    assert {shop.ask("pays", f"user-{number}")[0] for number in range(10)} <= {False, None}


def test_a_feature_flag_is_rolled_out_by_steps_through_the_proxy(
    delivering: ProxyProcess, spare: Plane, spare_namespace: str, tmp_path: Path
) -> None:
    space = Namespace(spare, spare_namespace)
    feature_flag = {**configuration(flagSpec=OLD), "kind": "FeatureFlag"}
    space.apply(feature_flag)
    source = followed_source(delivering.target, space.name)
    with pods(spare, space.name, source, tmp_path / "pods", "web-1") as [pod]:
        shop = Shop(space, pod)
        shop.wait({False})
        space.apply(promoted_shard(), rollout())
        shop.publish()
        space.apply({**feature_flag, "spec": {"flagSpec": NEW}})
        shop.wait_commit()
        assert shop.answers() == {(False, "baseline")}
        shop.publish(HALF)
        shop.wait({True, False})


@pytest.mark.long
@pytest.mark.parametrize("last", ["shard", "rollout", "status", "commit"])
def test_nobody_gets_a_change_before_its_first_step_whatever_is_written_last(shop: Shop, last: str) -> None:
    """The rollout's status, and then that of the object with the flags, are written before the change: by
    reconcilers, for which the FlagSet waits.
    """
    orders = {
        "shard": ("rollout", "status", "commit", "shard"),
        "rollout": ("shard", "rollout", "status", "commit"),
        "status": ("rollout", "shard", "status", "commit"),
        "commit": ("rollout", "status", "shard", "commit"),
    }

    def publish() -> None:
        shop.publish(PENDING)
        shop.name_rollout()

    writes: dict[str, Callable[[], None]] = {
        "shard": lambda: shop.space.apply(promoted_shard()),
        "rollout": lambda: shop.space.apply(rollout()),
        "status": publish,
        "commit": lambda: shop.commit(NEW),
    }
    for write in orders[last]:
        writes[write]()
        assert {value for value, _ in shop.answers()} == {False}
    shop.wait_commit()
    assert shop.answers() == {(False, "baseline")}
    shop.publish(HALF)
    shop.wait({True, False})


@pytest.fixture
def led(shop: Shop, spare: Plane, tmp_path: Path) -> Iterator[Shop]:
    """With a controller, and half of the users at the new definition."""
    with controller(spare, tmp_path / "controller") as leader:
        leader.wait_leads()
        shop.space.apply(promoted_shard(), rollout())
        shop.publish()
        shop.commit(NEW)
        shop.publish(HALF)
        shop.wait({True, False})
        shop.space.wait("ffc", lambda found: phases(found) == ["Exposed"])
        yield shop


def steps_of(found: dict[str, Any]) -> list[int | None]:
    return [candidate.get("step") for candidate in found["status"].get("candidates", ())]


def phases(found: dict[str, Any]) -> list[str]:
    return [entry["phase"] for entry in found.get("status", {}).get("rollouts", ())]


def test_the_status_says_what_is_served_and_a_repeated_apply_writes_nothing(led: Shop) -> None:
    found = led.space.wait("ffc", lambda found: found["status"].get("served") == "1/1")
    (entry,) = found["status"]["rollouts"]
    assert entry == {
        "name": "checkout", "shard": "checkout-promoted", "candidate": CANDIDATE, "flags": CHANGES,
        "phase": "Exposed", "step": "1/2", "share": "50",
    }  # fmt: skip
    assert condition(found, "RolloutActive")["message"].startswith(
        "FlagRollout checkout: step 1/2, 50% of users get the new definition of pay"
    )
    kinds = ("ffc", "flagrollout", "flagshard")
    before = [led.space.all(kind) for kind in kinds]
    for _ in range(5):
        led.commit(NEW)
        led.space.apply(promoted_shard(), rollout())
    led.space.poke_and_wait("ffc")
    after = [led.space.all(kind) for kind in kinds]
    assert versions(after[1:]) == versions(before[1:])
    assert after[0][0]["status"]["rollouts"] == [entry]


def versions(listed: list[list[dict[str, Any]]]) -> list[str]:
    return [one["metadata"]["resourceVersion"] for objects in listed for one in objects]


@pytest.mark.long
def test_the_promoted_definition_outlives_a_deleted_rollout_until_the_next_change(led: Shop) -> None:
    led.space.delete("flagrollout", "checkout")
    led.wait({False})
    found = led.space.wait("ffc", lambda found: phases(found) == ["Abandoned"])
    assert condition(found, "RolloutActive")["reason"] == "RolloutAbandoned"
    within(lambda: "RolloutAbandoned" in {event["reason"] for event in led.space.events()})
    led.space.apply(rollout())
    assert {value for value, _ in led.answers()} == {False}
    led.space.delete("flagrollout", "checkout")
    led.commit(NEXT)
    led.wait({True})
    led.space.wait("ffc", lambda found: phases(found) == [])


@pytest.mark.long
def test_a_person_promotes_what_a_deleted_rollout_has_held_back(led: Shop) -> None:
    led.space.delete("flagrollout", "checkout")
    led.wait({False})
    led.space.wait("ffc", lambda found: phases(found) == ["Abandoned"])
    led.space.kubectl("annotate", "ffc", "flags", f"{PROMOTE}={CANDIDATE}")
    led.wait({True})
    led.space.wait("ffc", lambda found: phases(found) == [])


@pytest.mark.long
def test_an_override_is_over_a_rollout(led: Shop) -> None:
    expires = timestamp(now() + timedelta(hours=1))
    spec = {"flagSetRef": {"name": "flags"}, "flag": "pay", "variant": "off", "reason": "INC-1",
            "expiresAt": expires}  # fmt: skip
    led.space.apply(manifest("FlagOverride", "pay-off", spec))
    led.wait({False})
    assert led.answers() == {(False, "excluded")}
    led.space.delete("flagoverride", "pay-off")
    led.wait({True, False})


@pytest.mark.long
def test_a_commit_right_after_a_new_rollout_waits_until_the_present_definition_is_promoted(
    spare: Plane, spare_namespace: str, tmp_path: Path
) -> None:
    with (
        controller(spare, tmp_path / "controller") as leader,
        spine_in(spare, spare_namespace, tmp_path) as spine,
    ):
        leader.wait_leads()
        spine.wait_ready("flagset")
        spec = {
            "flagSetRef": {"name": "flags"},
            "flags": ["banner"],
            "steps": [{"share": 1, "minDuration": "1h"}],
        }
        spine.apply(manifest("FlagRollout", "checkout", spec))
        commit = spine.push(flags__json=flags(banner="off"))
        spine.wait_applied(commit)
        found = spine.wait("flagrollout", lambda found: steps_of(found) == [0], "checkout")
        shard = spine.get("flagshard", found["status"]["promoted"]["shard"])
        assert shard["spec"]["flagSpec"]["flags"]["banner"]["defaultVariant"] == "on"
        assert {owner["kind"] for owner in shard["metadata"]["ownerReferences"]} == {
            "FlagRollout",
            "FeatureFlagConfiguration",
        }
        spine.wait("flagset", lambda found: condition(found, "RolloutActive").get("status") == "True")
        reverted = spine.push(flags__json=flags(banner="on"))
        spine.wait_applied(reverted)
        spine.wait("flagset", lambda found: not condition(found, "RolloutActive"))
