from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from controller.api import flagrollout, flagshard
from controller.api.featureflagconfiguration import FLAG_KIND
from controller.delivery.claims import KINDS
from controller.proxy.watch import PROGRESS
from evaluator.flags.candidates import candidate_digest, changed_flags
from evaluator.flags.rollouts import ROLLOUT_SHARE_KEY
from evaluator.resolving.resolve import compile_flag_set, resolve
from tests.unit.controller.proxy.test_overrides import documents
from tests.worlds.flags import flag_set_of
from tests.worlds.proxy import Scene, large
from tests.worlds.stages import written_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.worlds.evaluator import FakeStream


def flags(default: str, **more: Any) -> dict[str, Any]:
    flag = {"state": "ENABLED", "variants": {"on": "yes", "off": "no"}, "defaultVariant": default}
    return {"flags": {"hello": flag, **more}}


OLD, NEW = flags("off"), flags("on")


def changes(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, str]:
    desired, promoted = (flag_set_of(document) for document in (new, old))
    return dict(changed_flags(desired, promoted, ("*",)))


CHANGES = changes(NEW, OLD)
CANDIDATE = candidate_digest(CHANGES)
PROMOTED = {"digest": "sha256:1", "shard": "promoted"}


def status(**fields: Any) -> dict[str, Any]:
    """The status of a FlagRollout with one candidate."""
    candidate = {"digest": CANDIDATE, "flags": CHANGES, "phase": "Pending", "salt": "r/1", **fields}
    return {"phase": candidate["phase"], "promoted": PROMOTED, "candidates": [candidate]}


EXPOSED = {"phase": "Progressing", "step": 0, "stepText": "1/2", "share": 50}
HELD, HALF = status(), status(**EXPOSED)


def answers(document: Mapping[str, Any]) -> set[str | None]:
    """What twenty users are served of the flag `hello`."""
    compiled = compile_flag_set(flag_set_of(document))
    users = ({"targetingKey": f"user-{number}"} for number in range(20))
    return {resolve(compiled, "hello", None, user, 0).variant for user in users}


def sent_answers(stream: FakeStream) -> list[set[str | None]]:
    return [answers(document) for document in documents(stream)]


async def test_a_change_is_sent_step_by_step_as_the_status_of_its_rollout_says() -> None:
    scene = Scene()
    scene.shard("shop/promoted", OLD)
    scene.learn("shop/checkout", OLD)
    scene.rollout("shop/r", "checkout", phase="Idle", promoted=PROMOTED)
    stream = scene.open("shop/checkout")
    await scene.rest()
    scene.learn("shop/checkout", NEW)
    await scene.rest()
    scene.rollout("shop/r", "checkout", **HALF)
    await scene.rest()
    scene.rollout("shop/r", "checkout", **status(**EXPOSED | {"phase": "Promoting", "share": 100}))
    await scene.rest()
    assert sent_answers(stream) == [{"off"}, {"off"}, {"on", "off"}, {"on"}]
    scene.shard("shop/next", NEW)
    scene.rollout("shop/r", "checkout", phase="Succeeded", promoted={"digest": "sha256:2", "shard": "next"})
    await scene.rest()
    # Everybody has it already.
    assert len(stream.sent) == 4
    scene.proxy.close()


async def test_a_rollout_of_a_bare_feature_flag_is_served_by_steps() -> None:
    scene = Scene()
    scene.shard("shop/promoted", OLD)
    scene.learn("shop/checkout", NEW, FLAG_KIND)
    scene.rollout("shop/r", "checkout", **HELD)
    stream = scene.open("shop/checkout")
    await scene.rest()
    scene.rollout("shop/r", "checkout", **HALF)
    await scene.rest()
    assert sent_answers(stream) == [{"off"}, {"on", "off"}]
    scene.proxy.close()


async def test_two_candidates_are_sent_beside_each_other() -> None:
    scene = Scene()
    old = flags("off", other=OLD["flags"]["hello"])
    new = flags("on", other=NEW["flags"]["hello"])
    changed = changes(new, old)
    first = {**EXPOSED, "digest": "sha256:1", "flags": {"hello": changed["hello"]}, "salt": "r/1"}
    second = {**EXPOSED, "digest": "sha256:2", "flags": {"other": changed["other"]}, "salt": "r/2"}
    scene.shard("shop/promoted", old)
    scene.learn("shop/checkout", new)
    scene.rollout(
        "shop/r",
        "checkout",
        promoted=PROMOTED,
        candidates=[first, {**second, "phase": "Queued", "step": None}],
    )
    stream = scene.open("shop/checkout")
    await scene.rest()
    scene.rollout("shop/r", "checkout", promoted=PROMOTED, candidates=[first, second])
    await scene.rest()
    sent = documents(stream)
    assert [document["flags"]["other"]["metadata"][ROLLOUT_SHARE_KEY] for document in sent] == ["0", "50"]
    assert sent[0]["flags"]["hello"] == sent[1]["flags"]["hello"]
    scene.proxy.close()


IN_B = {"==": [{"var": "b"}, "yes"]}


@pytest.mark.parametrize(
    ("withheld", "expected"), [([], {"no", "yes"}), ([{}], {"no"}), ([IN_B], {"no", "yes"})]
)
async def test_nobody_is_sent_a_candidate_that_is_withheld_from_him(
    withheld: list[dict[str, Any]], expected: set[str]
) -> None:
    scene = Scene()
    scene.shard("shop/promoted", OLD)
    candidate = {**HALF["candidates"][0], "withheld": withheld}
    scene.rollout("shop/r", "checkout", promoted=PROMOTED, candidates=[candidate])
    scene.learn("shop/checkout", NEW)
    stream = scene.open("shop/checkout")
    await scene.rest()
    (sent,) = documents(stream)
    compiled = compile_flag_set(flag_set_of(sent))
    of_b = [{"targetingKey": f"user-{number}", "b": "yes"} for number in range(20)]
    assert {
        resolve(compiled, "hello", None, {"targetingKey": user["targetingKey"]}, 0).value for user in of_b
    } == expected
    if withheld:
        assert {resolve(compiled, "hello", None, user, 0).value for user in of_b} == {"no"}
    scene.proxy.close()


async def test_a_failed_candidate_and_another_one_are_held_back() -> None:
    scene = Scene()
    scene.shard("shop/promoted", OLD)
    scene.rollout("shop/r", "checkout", **HALF)
    scene.learn("shop/checkout", NEW)
    stream = scene.open("shop/checkout")
    await scene.rest()
    another = flags("on", other={"state": "ENABLED", "variants": {"on": True}})
    another["flags"]["hello"]["targeting"] = "on"
    scene.learn("shop/checkout", another)
    await scene.rest()
    scene.learn("shop/checkout", NEW)
    scene.rollout("shop/r", "checkout", **status(phase="Failed"))
    await scene.rest()
    assert [sent_answers(stream)[0], sent_answers(stream)[-1]] == [{"on", "off"}, {"off"}]
    assert {"off"} in sent_answers(stream)[1:-1]
    scene.proxy.close()


@pytest.mark.parametrize("document", [OLD, large("no")], ids=["small", "large"])
async def test_nothing_is_sent_without_the_promoted_definitions_and_the_last_set_stays(
    document: dict[str, Any],
) -> None:
    scene = Scene()
    scene.learn("shop/checkout", {"flags": {**document["flags"], **NEW["flags"]}})
    scene.rollout("shop/r", "checkout", **HELD)
    stream = scene.open("shop/checkout")
    await scene.rest()
    assert not stream.sent
    scene.shard("shop/promoted", OLD)
    await scene.rest()
    assert sent_answers(stream) == [{"off"}]
    scene.forget("shop/promoted", flagshard.KIND)
    await scene.rest()
    late = scene.open("shop/checkout")
    await scene.rest()
    assert (sent_answers(stream), sent_answers(late)) == ([{"off"}], [{"off"}])
    scene.proxy.close()


NAMED = [{"name": "r", "shard": "promoted", "phase": "Idle"}]


async def test_a_change_is_held_while_only_the_status_of_the_object_names_its_rollout() -> None:
    scene = Scene()
    scene.learn("shop/checkout", OLD)
    stream = scene.open("shop/checkout")
    await scene.rest()
    two = [{"name": "other", "shard": "others", "phase": "Idle"}, *NAMED]
    scene.shard("shop/others", {"flags": {"other": OLD["flags"]["hello"]}})
    scene.shard("shop/promoted", OLD)
    scene.learn("shop/checkout", NEW, status={"rollouts": two})
    await scene.rest()
    assert sent_answers(stream)[-1] == {"off"}
    scene.rollout("shop/other", "elsewhere", phase="Idle")
    scene.rollout("shop/r", "checkout", **HALF)
    scene.learn("shop/checkout", NEW, status={"rollouts": NAMED})
    await scene.rest()
    assert sent_answers(stream)[-1] == {"on", "off"}
    scene.forget("shop/r", flagrollout.KIND)
    await scene.rest()
    assert sent_answers(stream)[-1] == {"off"}
    scene.learn("shop/checkout", NEW)
    await scene.rest()
    assert sent_answers(stream)[-1] == {"on"}
    scene.proxy.close()


async def test_a_named_rollout_without_its_shard_holds_what_was_delivered_and_not_the_first_set() -> None:
    scene = Scene()
    scene.learn("shop/checkout", OLD, status={"rollouts": NAMED})
    stream = scene.open("shop/checkout")
    await scene.rest()
    scene.learn("shop/checkout", NEW, status={"rollouts": NAMED})
    await scene.rest()
    assert sent_answers(stream) == [{"off"}]
    scene.shard("shop/promoted", OLD)
    await scene.rest()
    scene.rollout("shop/r", "checkout", **status(**EXPOSED | {"phase": "Promoting", "share": 100}))
    await scene.rest()
    assert sent_answers(stream)[-1] == {"on"}
    scene.proxy.close()


async def test_nothing_is_sent_before_the_rollouts_are_known() -> None:
    scene = Scene(synced=False)
    scene.shard("shop/promoted", OLD)
    scene.learn("shop/checkout", NEW)
    stream = scene.open("shop/checkout")
    for kind in {*KINDS, *PROGRESS} - {flagrollout.KIND}:
        scene.informer.end_listing(kind, "")
    await scene.rest()
    assert not stream.sent
    scene.rollout("shop/r", "checkout", **HELD)
    scene.informer.end_listing(flagrollout.KIND, "")
    await scene.rest()
    assert sent_answers(stream) == [{"off"}]
    scene.proxy.close()


async def test_a_rollout_names_the_flag_set_that_wrote_the_object() -> None:
    scene = Scene()
    scene.shard("shop/promoted", OLD)
    scene.learn("shop/checkout-eu", NEW, **written_by("checkout"))
    scene.rollout("shop/r", "checkout", **HELD)
    stream = scene.open("shop/checkout-eu")
    await scene.rest()
    scene.rollout("shop/r", "checkout", **HALF)
    await scene.rest()
    assert sent_answers(stream) == [{"off"}, {"on", "off"}]
    scene.proxy.close()


async def test_checks_in_the_status_of_a_rollout_send_nothing() -> None:
    scene = Scene()
    scene.shard("shop/promoted", OLD)
    scene.learn("shop/checkout", NEW)
    scene.rollout("shop/r", "checkout", **HALF)
    stream = scene.open("shop/checkout")
    await scene.rest()
    built = scene.proxy.deliveries.contents.built
    scene.rollout(
        "shop/r", "checkout", **status(**EXPOSED, verdict="Pass", lastCheckAt="2026-01-01T00:00:00Z")
    )
    await scene.rest()
    assert (len(stream.sent), scene.proxy.deliveries.contents.built) == (1, built)
    scene.proxy.close()


async def test_the_candidate_of_a_rollout_that_is_gone_is_held_back_until_a_change_or_a_decision() -> None:
    named = {"name": "r", "shard": "promoted", "candidate": CANDIDATE, "flags": CHANGES}
    entry = {**named, "phase": "Exposed", "step": "1/2"}

    def learn(scene: Scene, document: Mapping[str, Any], **meta: Any) -> None:
        scene.learn("shop/checkout", document, status={"rollouts": [entry]}, **meta)

    scene = Scene()
    scene.shard("shop/promoted", OLD)
    learn(scene, NEW)
    scene.rollout("shop/r", "checkout", **HALF)
    stream = scene.open("shop/checkout")
    await scene.rest()
    scene.forget("shop/r", flagrollout.KIND)
    await scene.rest()
    assert sent_answers(stream) == [{"on", "off"}, {"off"}]
    # A new one of that name knows no promoted definitions yet.
    scene.rollout("shop/r", "checkout")
    await scene.rest()
    assert sent_answers(stream)[-1] == {"off"}
    learn(scene, NEW, annotations={flagrollout.PROMOTE: CANDIDATE})
    await scene.rest()
    assert sent_answers(stream)[-1] == {"on"}
    learn(scene, NEW)
    await scene.rest()
    assert sent_answers(stream)[-1] == {"off"}
    changed = flags("on")
    changed["flags"]["hello"]["targeting"] = "on"
    learn(scene, changed)
    await scene.rest()
    assert sent_answers(stream)[-1] == {"on"}
    scene.proxy.close()


async def test_an_override_is_over_a_rollout() -> None:
    scene = Scene()
    scene.shard("shop/promoted", OLD)
    scene.learn("shop/checkout", NEW)
    scene.rollout("shop/r", "checkout", **HALF)
    stream = scene.open("shop/checkout")
    await scene.rest()
    scene.override("shop/o", "checkout", disabled=True)
    await scene.rest()
    assert documents(stream)[-1]["flags"]["hello"]["state"] == "DISABLED"
    scene.forget("shop/o", "FlagOverride")
    await scene.rest()
    assert documents(stream)[0] == documents(stream)[-1]
    scene.proxy.close()


@pytest.mark.parametrize(
    "status",
    [
        {"promoted": 1},
        {"promoted": {"digest": "sha256:1"}},
        {"phase": "Other", "promoted": None, "candidates": {}},
        {"promoted": None, "candidates": [1]},
    ],
)
async def test_a_rollout_whose_status_cannot_be_read_changes_nothing(status: dict[str, Any]) -> None:
    scene = Scene()
    scene.learn("shop/checkout", NEW)
    scene.rollout("shop/r", "checkout", **status)
    stream = scene.open("shop/checkout")
    await scene.rest()
    assert sent_answers(stream) == [{"on"}]
    scene.proxy.close()
