"""FlagSets that write to another cluster: what is there, what is said, and what becomes of it in the end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from controller.api.flagset import FINALIZER, KIND, LABEL
from controller.flagsets.places import PATIENCE
from controller.runtime.setbacks import Failed
from evaluator.host.times import timestamp
from tests.worlds.flagsets import CONFIGURATION, World, document, flag
from tests.worlds.other_clusters import OtherCluster
from tests.worlds.stages import Turn, take_turn

if TYPE_CHECKING:
    from typing import Any

EU = {"secretRef": {"name": "eu"}}
US = {"secretRef": {"name": "us"}}
DOWN = Failed("ApiServerUnavailable", "cluster https://eu:6443: connection refused")
FINISHED = [f"{CONFIGURATION}/checkout"]


def world(**spec: Any) -> tuple[World, OtherCluster]:
    """A FlagSet that writes to the cluster `eu`."""
    made = World()
    made.commit("1", document(banner=flag()))
    made.flag_set(kubeConfig=EU, **spec)
    return made, made.others.add("eu")


class OtherAddress(OtherCluster):
    """A cluster by another address."""

    def __init__(self, cluster: OtherCluster) -> None:
        super().__init__("address", 0)
        self.objects = cluster.objects


def finalizers(made: World) -> tuple[str, ...]:
    return made.cluster.the(KIND, "checkout").finalizers


async def delete(made: World, after: timedelta = timedelta()) -> Turn:
    """A turn of the loop for a FlagSet that was deleted that long ago."""
    resource = made.cluster.the(KIND, "checkout")
    deleted = timestamp(made.now - after)
    made.cluster.objects.put(replace(resource, deleting=True, deleted_at=deleted))
    return await take_turn(made.reconciler, made.cluster.the(KIND, "checkout"), made.now)


async def test_flags_are_written_there_and_owned_by_nobody() -> None:
    made, eu = world(serviceAccountName="flags")
    turn = await made.look()
    assert turn.reason == "Succeeded", turn.message
    written = eu.the(CONFIGURATION, "checkout")
    assert (written.owners, written.labels) == ((), {LABEL: "checkout"})
    assert made.cluster.names(CONFIGURATION) == []
    assert set(made.others.accounts) == {"flags"}
    assert turn.status["remoteClusters"] == [
        {"server": eu.server, "kubeConfig": EU, "serviceAccountName": "flags"}
    ]
    assert finalizers(made) == (FINALIZER,)
    eu.take_writes()
    await made.look()
    assert eu.take_writes() == []


async def test_secrets_are_read_here_by_the_default_account() -> None:
    made, _ = world(serviceAccountName="flags", substituteFrom=[{"kind": "ConfigMap", "name": "values"}])
    made.values["ConfigMap", "values"] = {}
    await made.look()
    assert made.readers == [None]


async def test_drift_is_mended_at_the_interval_and_also_after_a_restart() -> None:
    made, eu = world()
    await made.look()
    eu.edit(CONFIGURATION, "checkout", flagSpec={"flags": {}})
    turn = await made.look()
    assert turn.said == [
        f"DriftCorrected: {CONFIGURATION} checkout was changed by kubectl-edit; "
        "restored to the source's state"
    ]
    eu.remove(CONFIGURATION, "checkout")
    made.restart()
    await made.look()
    assert eu.kinds() == FINISHED


@pytest.mark.parametrize("policy", ["Correct", "Warn"])
async def test_another_cluster_is_written_to_whatever_is_done_about_drift(policy: str) -> None:
    made, eu = world(driftPolicy=policy)
    await made.look()
    us = made.others.add("us")
    made.flag_set(kubeConfig=US, driftPolicy=policy)
    turn = await made.look()
    assert (us.kinds(), eu.kinds()) == (FINISHED, [])
    assert [one["server"] for one in turn.status["remoteClusters"]] == [us.server]
    assert turn.reason == "Succeeded"


async def test_a_cluster_that_does_not_answer_keeps_what_it_has_and_says_so() -> None:
    made, eu = world()
    await made.look()
    eu.down = DOWN
    made.commit("2", document(banner=flag("on")))
    turn = await made.look()
    assert turn.ready == ("False", "ApiServerUnavailable", DOWN.message)
    assert turn.status["lastAppliedRevision"] == "main@sha1:1"
    assert turn.status["remoteClusters"][0]["server"] == eu.server
    eu.down = None
    assert (await made.look()).status["lastAppliedRevision"] == "main@sha1:2"


async def test_what_is_in_an_earlier_cluster_is_removed_once_that_answers() -> None:
    made, eu = world()
    await made.look()
    us = made.others.add("us")
    eu.down = DOWN
    made.flag_set(kubeConfig=US)
    turn = await made.look()
    assert us.kinds() == FINISHED
    assert turn.ready == ("False", "PruneFailed", DOWN.message)
    assert [one["server"] for one in turn.status["remoteClusters"]] == [us.server, eu.server]
    eu.down = None
    turn = await made.look()
    assert (turn.reason, eu.kinds()) == ("Succeeded", [])


async def test_the_same_cluster_by_another_address_keeps_its_objects() -> None:
    made, eu = world()
    await made.look()
    uid = eu.the(CONFIGURATION, "checkout").uid
    made.flag_set(kubeConfig=US)
    made.others.by_secret["us"] = OtherAddress(eu)
    turn = await made.look()
    assert eu.the(CONFIGURATION, "checkout").uid == uid
    assert [one["server"] for one in turn.status["remoteClusters"]] == ["https://address:6443"]


async def test_of_many_clusters_that_do_not_answer_the_last_are_remembered() -> None:
    made, _ = world()
    turn = await made.look()
    names = ["eu", *(f"c{number}" for number in range(5))]
    for name in names:
        made.others.add(name)
        made.flag_set(kubeConfig={"secretRef": {"name": name}})
        turn = await made.look()
        made.others.by_secret[name].down = DOWN
    assert [one["kubeConfig"]["secretRef"]["name"] for one in turn.status["remoteClusters"]] == [
        "c4",
        "c3",
        "c2",
        "c1",
    ]
    assert [line.partition(":")[0] for line in turn.said] == ["RemoteObjectsLeft"]


@pytest.mark.parametrize(
    ("spec", "why"), [({"prune": False}, "spec.prune is false"), ({}, "Secret eu does not exist")]
)
async def test_what_stays_in_an_earlier_cluster_is_said_once(spec: dict[str, Any], why: str) -> None:
    made, eu = world(**spec)
    await made.look()
    del made.others.by_secret["eu"]
    made.others.add("us")
    made.flag_set(kubeConfig=US, **spec)
    turn = await made.look()
    assert turn.said == [
        f"RemoteObjectsLeft: what the FlagSet wrote in cluster {eu.server} stays there: {why}"
    ]
    assert eu.kinds() == FINISHED
    assert (await made.look()).said == []


async def test_a_set_comes_back_to_its_own_cluster() -> None:
    made, eu = world()
    await made.look()
    made.flag_set()
    turn = await made.look()
    assert (eu.kinds(), made.cluster.names(CONFIGURATION)) == ([], ["checkout"])
    assert "remoteClusters" not in turn.status
    assert finalizers(made) == ()
    assert made.cluster.the(CONFIGURATION, "checkout").owners


async def test_a_set_leaves_its_own_cluster() -> None:
    made = World()
    made.commit("1", document(banner=flag()))
    made.flag_set()
    await made.look()
    eu = made.others.add("eu")
    made.flag_set(kubeConfig=EU)
    await made.look()
    assert (eu.kinds(), made.cluster.names(CONFIGURATION)) == (FINISHED, [])


async def test_an_object_of_a_flag_set_of_that_cluster_is_left_alone() -> None:
    made, eu = world()
    owner = {"apiVersion": "flagstaff.dev/v1beta1", "kind": KIND, "name": "checkout", "uid": "theirs"}
    meta = {"name": "checkout", "labels": {LABEL: "checkout"}, "ownerReferences": [owner]}
    eu.put(
        {"apiVersion": "core.openfeature.dev/v1beta1", "kind": CONFIGURATION, "metadata": meta, "spec": {}}
    )
    turn = await made.look()
    assert turn.ready == (
        "False",
        "OwnershipConflict",
        f"{CONFIGURATION} checkout belongs to FlagSet checkout of cluster {eu.server}; give one of the two "
        "another spec.target.name",
    )
    await delete(made)
    assert eu.kinds() == FINISHED


async def test_a_deleted_set_goes_once_its_objects_have() -> None:
    made, eu = world()
    await made.look()
    eu.down = DOWN
    turn = await delete(made)
    assert turn.ready == (
        "False",
        "Deleting",
        f"what was written elsewhere is not removed yet: {DOWN.message}",
    )
    assert finalizers(made) == (FINALIZER,)
    eu.down = None
    await delete(made)
    assert (eu.kinds(), made.cluster.names(KIND)) == ([], [])


async def test_a_suspended_set_is_let_go_as_well() -> None:
    made, eu = world()
    await made.look()
    made.flag_set(kubeConfig=EU, suspend=True)
    await delete(made)
    assert (eu.kinds(), made.cluster.names(KIND)) == ([], [])


async def test_a_deleted_set_goes_at_once_without_its_credentials() -> None:
    made, eu = world()
    await made.look()
    del made.others.by_secret["eu"]
    turn = await delete(made)
    assert turn.said == [
        f"RemoteObjectsLeft: what the FlagSet wrote in cluster {eu.server} stays there: "
        "Secret eu does not exist"
    ]
    assert (eu.kinds(), made.cluster.names(KIND)) == (FINISHED, [])


async def test_a_deleted_set_is_kept_no_longer_than_that() -> None:
    made, eu = world()
    await made.look()
    eu.down = DOWN
    turn = await delete(made, after=PATIENCE)
    assert turn.said == [
        f"RemoteObjectsLeft: what the FlagSet wrote in cluster {eu.server} stays there: it could not be "
        f"removed for 10 minutes: {DOWN.message}"
    ]
    assert made.cluster.names(KIND) == []


async def test_a_set_whose_status_was_never_written_is_cleaned_up() -> None:
    made, eu = world()
    await made.look()
    made.cluster.set_status(made.cluster.the(KIND, "checkout"), {})
    await delete(made)
    assert (eu.kinds(), made.cluster.names(KIND)) == ([], [])


async def test_a_set_that_does_not_prune_has_no_finalizer() -> None:
    made, eu = world(prune=False)
    await made.look()
    assert finalizers(made) == ()
    made.flag_set(kubeConfig=EU)
    await made.look()
    assert finalizers(made) == (FINALIZER,)
    made.flag_set(kubeConfig=EU, prune=False)
    assert finalizers(made) == (FINALIZER,)
    await made.look()
    assert finalizers(made) == ()
    assert eu.kinds() == FINISHED


async def test_who_serves_it_is_told_as_of_the_last_look() -> None:
    made, eu = world()
    first = await made.look()
    assert first.settled.requeue_after == 30.0
    written = eu.the(CONFIGURATION, "checkout")
    digest = first.status["digest"]
    told = {"type": "Propagated", "status": "True", "reason": "Propagated", "message": "2 of 2 evaluators"}
    status = {"ownDigest": digest, "digest": digest, "served": "2/2", "conditions": [told]}
    eu.set_status(written, status)
    turn = await made.look()
    assert turn.status["served"] == "2/2"
    (propagated,) = [one for one in turn.status["conditions"] if one["type"] == "Propagated"]
    assert propagated["message"] == f"2 of 2 evaluators; as read from cluster {eu.server}, at most 10m ago"
    assert turn.settled.requeue_after == 600.0
