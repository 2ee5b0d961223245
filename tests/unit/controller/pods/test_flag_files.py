"""ConfigMaps that follow the flags, and the annotations of pods that read them."""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.meta import ObjectKey, Resource
from controller.configurations.stage import BY_SHARD, CONFIGURATIONS
from controller.pods import flag_files
from controller.pods.flag_file import FlagFile
from controller.pods.flag_files import FileTouches, FlagFiles, queue_of_files
from controller.pods.marked_pods import FilePods
from controller.runtime.cache import Cache
from controller.runtime.setbacks import Failed
from controller.runtime.watches import indexes_of
from tests.waiting import run_beside, run_until, until
from tests.worlds.flags import switches
from tests.worlds.objects import thing
from tests.worlds.pods import marked_pod
from tests.worlds.stages import Sink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


FILE = FlagFile("shop", "checkout")
REPLICAS = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app-1", "uid": "rs-1"}


def pod(name: str, *owners: dict[str, Any], files: str = "checkout", **meta: Any) -> dict[str, Any]:
    return marked_pod(name, {"flagstaff.dev/flag-files": files}, ownerReferences=[*owners], **meta)


DISABLING = thing("FlagOverride", "off", {
    "flagSetRef": {"name": "checkout"}, "flag": "banner", "disabled": True, "reason": "INC-1",
    "expiresAt": "2026-01-02T00:00:30Z",
})  # fmt: skip


@dataclass
class FileCluster:
    """A cluster that keeps one ConfigMap, and its pods and Events."""

    config_maps: dict[FlagFile, dict[str, Any]] = field(default_factory=dict)
    touched: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    """The versions in the pods' annotations."""
    slept: float = 0.0
    sleepers: int = 0
    writes: int = 0
    failing: Failed | None = None
    untouchable: Failed | None = None
    delay: float = 0.0
    blocked: Callable[[str, str], bool] = lambda _verb, _namespace: False
    """Which requests are never answered."""
    sink: Sink = field(default_factory=Sink)
    waiting: int = 0
    """Those that were made meanwhile."""

    def __post_init__(self) -> None:
        self.objects = Cache(indexes_of((CONFIGURATIONS,)))
        self.time = 0.0
        clock = lambda: self.time  # noqa: E731
        self.queue = queue_of_files(clock, lambda: 0.0)
        self.pods = FilePods(self.queue.put)
        self.touches = FileTouches(
            self, self.pods, clock, queue_of_files(clock, lambda: 0.0), delay=self.delay, sleep=self.sleep
        )
        now = lambda: datetime(2026, 1, 2, tzinfo=UTC)  # noqa: E731
        self.files = FlagFiles(
            self.objects, self, [self.sink], now, self.queue, BY_SHARD, self.pods, self.touches
        )
        self.objects.react(self.files.on_change)

    def flags(
        self, generation: int = 1, name: str = "checkout", namespace: str = "shop", **spec: Any
    ) -> None:
        given = {"generation": generation, "resourceVersion": str(generation)}
        self.objects.learn(thing("FeatureFlagConfiguration", name, spec, namespace=namespace, **given))

    def due(self) -> bool:
        return len(self.queue) > 0

    async def look(self) -> None:
        """Work on all that is due."""
        await run_until(self.files.run(), lambda: not (self.queue.busy or self.touches.queue.busy))

    @property
    def defaults(self) -> dict[str, str]:
        """What the file says."""
        content = json.loads(self.config_maps[FILE]["data"]["shop_checkout.flagd.json"])
        return {key: each["defaultVariant"] for key, each in content["flags"].items()}

    @property
    def states(self) -> dict[str, str]:
        """The states of the flags in the file."""
        content = json.loads(self.config_maps[FILE]["data"]["shop_checkout.flagd.json"])
        return {key: each["state"] for key, each in content["flags"].items()}

    @property
    def owners(self) -> list[str]:
        return [each["uid"] for each in self.config_maps[FILE]["metadata"]["ownerReferences"]]

    async def config_map(self, file: FlagFile) -> dict[str, Any] | None:
        if self.failing is not None:
            raise self.failing
        return deepcopy(self.config_maps.get(file))

    async def adopt(self, file: FlagFile) -> None:
        self.config_maps[file]["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "flagstaff"}

    async def apply(self, manifest: Mapping[str, Any], *, manager: str) -> tuple[dict[str, Any], str]:
        assert manager == "flagstaff-flag-files"
        meta = manifest["metadata"]
        await self.wait_answered("apply", meta["namespace"])
        self.writes += 1
        body = deepcopy(dict(manifest))
        body["metadata"]["resourceVersion"] = str(self.writes)
        self.config_maps[FlagFile(meta["namespace"], meta["name"])] = body
        return deepcopy(body), ""

    async def touch(self, pod: Resource, annotations: Mapping[str, str]) -> None:
        assert annotations.keys() == {"flagstaff.dev/flags-changed"}
        await self.wait_answered("touch", pod.namespace)
        if self.untouchable is not None:
            raise self.untouchable
        self.touched.append(pod.name)
        self.versions.append(annotations["flagstaff.dev/flags-changed"])

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.sleepers += 1
        assert self.sleepers == 1
        await asyncio.sleep(0)
        self.sleepers -= 1

    async def wait_answered(self, verb: str, namespace: str) -> None:
        if self.blocked(verb, namespace):
            self.waiting += 1
            await asyncio.Event().wait()


async def test_it_is_made_for_the_first_pod_and_follows_the_flags() -> None:
    world = FileCluster()
    world.flags(flagSpec=switches(banner="on"))
    assert not world.due()
    world.pods.informer.learn("Pod", pod("a", {**REPLICAS, "controller": True}))
    world.pods.informer.learn("Pod", pod("b", {**REPLICAS, "controller": True}))
    await world.look()
    assert (world.defaults, world.owners, sorted(world.touched)) == ({"banner": "on"}, ["rs-1"], ["a", "b"])
    assert world.config_maps[FILE]["metadata"]["annotations"] == {"openfeature.dev/featureflag": "checkout"}
    world.flags(2, flagSpec=switches(banner="off"))
    await world.look()
    assert (world.defaults, sorted(world.touched)) == ({"banner": "off"}, ["a", "a", "b", "b"])
    assert (world.writes, world.sink.reasons) == (2, ["FlagFileWritten"] * 2)


async def test_what_changes_no_flag_writes_nothing() -> None:
    world = FileCluster()
    world.flags(flagSpec=switches(banner="on"))
    world.pods.informer.learn("Pod", pod("a"))
    await world.look()
    # Its status, the pod's own change, and the look of every minute.
    spec = {"flagSpec": switches(banner="on")}
    world.objects.learn(
        thing("FeatureFlagConfiguration", "checkout", spec, status={"flags": 1}, resourceVersion="2")
    )
    world.pods.informer.learn("Pod", pod("a"))
    assert not world.due()
    world.time += flag_files.CHECK_SECONDS
    assert world.due()
    await world.look()
    assert (world.writes, world.touched) == (1, ["a"])


async def test_what_was_deleted_is_made_again() -> None:
    world = FileCluster()
    world.flags(flagSpec=switches(banner="on"))
    world.pods.informer.learn("Pod", pod("a"))
    await world.look()
    world.config_maps.clear()
    world.time += flag_files.CHECK_SECONDS
    await world.look()
    # Of the same flags, the pods are annotated once more.
    assert (world.defaults, world.versions) == ({"banner": "on"}, ["1", "2"])


async def test_a_bad_flag_stays_as_it_is_in_the_file() -> None:
    world = FileCluster()
    world.flags(flagSpec=switches(banner="on", cart="on"))
    world.pods.informer.learn("Pod", pod("a"))
    await world.look()
    bad = switches(banner="off", cart="off")
    bad["flags"]["cart"] = "on"
    world.flags(2, flagSpec=bad)
    await world.look()
    assert world.defaults == {"banner": "off", "cart": "on"}
    world.flags(3, flagSpec="none at all")
    await world.look()
    assert (world.defaults, world.sink.reasons[-1]) == ({"banner": "off", "cart": "on"}, "FlagFileFailed")


async def test_the_flags_stay_where_the_flag_set_goes() -> None:
    world = FileCluster()
    world.flags(flagSpec=switches(banner="on"))
    world.pods.informer.learn("Pod", pod("a"))
    await world.look()
    world.objects.forget(ObjectKey("FeatureFlagConfiguration", "shop", "checkout"))
    await world.look()
    assert (world.defaults, world.writes) == ({"banner": "on"}, 1)


@pytest.mark.parametrize("flag_set", ["bad", "too large", "shards that lack", "deleted"])
async def test_newer_pods_keep_the_last_flags_where_there_are_none_to_write(flag_set: str) -> None:
    world = FileCluster()
    world.flags(flagSpec=switches(banner="on"))
    world.pods.informer.learn("Pod", pod("a", REPLICAS))
    await world.look()
    match flag_set:
        case "bad":
            world.flags(2, flagSpec="none at all")
        case "too large":
            variants = {"on": "x" * (flag_files.MOST_BYTES + 1)}
            large = {"state": "ENABLED", "variants": variants, "defaultVariant": "on"}
            world.flags(2, flagSpec={"flags": {"banner": large}})
        case "shards that lack":
            world.flags(2, shards=[{"name": "checkout-1", "digest": "sha256:" + "0" * 64}])
        case _:
            world.objects.forget(ObjectKey("FeatureFlagConfiguration", "shop", "checkout"))
    await world.look()
    world.pods.informer.learn("Pod", pod("b", {**REPLICAS, "name": "app-2", "uid": "rs-2"}))
    await world.look()
    assert (world.defaults, world.owners, world.writes) == ({"banner": "on"}, ["rs-1", "rs-2"], 2)
    # Kubernetes takes off what is gone, and the next look leaves it so.
    del world.config_maps[FILE]["metadata"]["ownerReferences"][0]
    world.pods.informer.forget(ObjectKey("Pod", "shop", "a"))
    world.time += flag_files.CHECK_SECONDS
    await world.look()
    assert (world.owners, world.writes, world.sink.reasons.count("FlagFileWritten")) == (["rs-2"], 2, 1)


async def test_without_a_flag_set_no_file_is_kept_and_other_pods_are_not_annotated() -> None:
    world = FileCluster()
    world.pods.informer.learn("Pod", pod("a"))
    await world.look()
    world.config_maps[FILE] = {"metadata": {"name": "checkout", "namespace": "shop"}, "data": {"x": "y"}}
    world.pods.informer.learn("Pod", pod("b"))
    await world.look()
    world.time += flag_files.CHECK_SECONDS
    assert (world.writes, world.sink.reasons, world.due()) == (0, [], False)


async def test_each_owner_of_pods_keeps_it_and_bare_pods_do() -> None:
    world = FileCluster()
    world.flags(flagSpec=switches(banner="on"))
    world.pods.informer.learn("Pod", pod("a", REPLICAS))
    await world.look()
    world.pods.informer.learn("Pod", pod("b"))
    await world.look()
    assert (world.owners, world.touched) == (["rs-1", "uid-b"], ["a"])
    # One that Kubernetes removed does not come back.
    del world.config_maps[FILE]["metadata"]["ownerReferences"][0]
    world.pods.informer.forget(ObjectKey("Pod", "shop", "a"))
    world.time += flag_files.CHECK_SECONDS
    await world.look()
    assert world.owners == ["uid-b"]


async def test_a_file_without_readers_is_left_to_its_owners() -> None:
    world = FileCluster()
    world.flags(flagSpec=switches(banner="on"))
    world.pods.informer.learn("Pod", pod("a"))
    await world.look()
    world.pods.informer.forget(ObjectKey("Pod", "shop", "a"))
    world.flags(2, flagSpec=switches(banner="off"))
    world.time += flag_files.CHECK_SECONDS
    await world.look()
    world.time += flag_files.CHECK_SECONDS
    assert (world.writes, world.due()) == (1, False)


async def test_somebody_elses_config_map_is_left_alone_and_the_operators_goes_on_as_ours() -> None:
    world = FileCluster()
    world.config_maps[FILE] = {"metadata": {"name": "checkout", "namespace": "shop"}, "data": {"x": "y"}}
    world.flags(flagSpec=switches(banner="on"))
    world.pods.informer.learn("Pod", pod("a"))
    await world.look()
    assert (world.writes, world.sink.reasons) == (0, ["FlagFileFailed"])
    assert "not of Flagstaff; rename it" in world.sink.events[0].message
    world.config_maps[FILE]["metadata"]["annotations"] = {"openfeature.dev/featureflag": "checkout"}
    world.time += flag_files.CHECK_SECONDS
    await world.look()
    assert world.defaults == {"banner": "on"}


async def test_the_same_failure_is_reported_once() -> None:
    world = FileCluster(failing=Failed("AccessDenied", "no; kubectl create rolebinding …"))
    world.flags(flagSpec=switches(banner="on"))
    world.pods.informer.learn("Pod", pod("a"))
    for _ in range(3):
        await world.look()
        world.time += flag_files.CHECK_SECONDS
    assert world.sink.reasons == ["FlagFileFailed"]
    world.failing = None
    await world.look()
    assert world.defaults == {"banner": "on"}


async def test_a_content_larger_than_a_config_map_is_reported() -> None:
    world = FileCluster()
    world.flags(flagSpec=switches(**{"x" * flag_files.MOST_BYTES: "on"}))
    world.pods.informer.learn("Pod", pod("a"))
    await world.look()
    assert "are more than a ConfigMap holds; use the provider kubernetes" in world.sink.events[0].message


@pytest.mark.parametrize("verb", ["apply", "touch"])
async def test_one_namespaces_many_files_do_not_delay_anothers(verb: str) -> None:
    world = FileCluster(blocked=lambda asked, namespace: (asked, namespace) == (verb, "large"))
    for number in range(48):
        world.flags(name=f"f{number}", namespace="large", flagSpec=switches(banner="on"))
        world.pods.informer.learn("Pod", pod(f"p{number}", files=f"f{number}", namespace="large"))
    async with run_beside(world.files.run()):
        # As many as one namespace has alone.
        await until(lambda: world.waiting == 4)
        world.flags(flagSpec=switches(banner="on"))
        world.pods.informer.learn("Pod", pod("a"))
        await until(lambda: world.touched == ["a"])


async def test_a_file_is_written_again_while_its_pods_are_annotated_for_the_last_change() -> None:
    world = FileCluster(blocked=lambda verb, _namespace: verb == "touch")
    world.flags(flagSpec=switches(banner="on"))
    world.pods.informer.learn("Pod", pod("a"))
    async with run_beside(world.files.run()):
        await until(lambda: world.writes == 1)
        world.flags(2, flagSpec=switches(banner="off"))
        await until(lambda: world.writes == 2)
    assert world.defaults == {"banner": "off"}


async def test_kubelets_have_time_to_see_each_change_before_the_pods_are_annotated() -> None:
    world = FileCluster(delay=1.0)
    world.flags(flagSpec=switches(banner="on"))
    world.pods.informer.learn("Pod", pod("a"))
    touched = []
    for moment in (0.0, 0.75, 1.0, 1.5, 1.75):
        world.time = moment
        if moment == 0.75:
            world.flags(2, flagSpec=switches(banner="off"))
        await world.look()
        touched.append(len(world.touched))
    assert touched == [0, 0, 1, 1, 2]


async def test_all_files_pods_are_annotated_no_faster_than_the_api_server_can_take() -> None:
    world = FileCluster()
    for name in ("f1", "f2"):
        world.flags(name=name, flagSpec=switches(banner="on"))
        for number in range(50):
            world.pods.informer.learn("Pod", pod(f"{name}-{number}", files=name))
    async with run_beside(world.files.run()):
        await until(lambda: len(world.touched) == 100)
    assert world.slept == pytest.approx(2.0)


async def test_pods_that_may_not_be_annotated_are_reported() -> None:
    world = FileCluster(untouchable=Failed("AccessDenied", "no; kubectl create rolebinding …"))
    world.flags(flagSpec=switches(banner="on"))
    world.pods.informer.learn("Pod", pod("a"))
    world.pods.informer.learn("Pod", pod("b"))
    async with run_beside(world.files.run()):
        await until(lambda: "FlagFileFailed" in world.sink.reasons)
    assert world.sink.reasons == ["FlagFileWritten", "FlagFileFailed"]


def test_a_pod_names_few_files() -> None:
    woken: list[FlagFile] = []
    pods = FilePods(woken.append)
    pods.informer.learn("Pod", pod("a", files=",".join(f"f{number}" for number in range(1000))))
    assert len(woken) == 64
    pods.informer.learn("Pod", pod("a", files="f1"))
    assert (
        [each.name for each in pods.readers(FlagFile("shop", "f1"))],
        pods.readers(FlagFile("shop", "f2")),
    ) == (["a"], [])


async def test_a_file_has_the_override_and_a_bad_change_beneath_it_holds_the_definition() -> None:
    world = FileCluster()
    world.flags(flagSpec=switches(banner="on"))
    world.pods.informer.learn("Pod", pod("a"))
    world.objects.learn(DISABLING)
    await world.look()
    assert world.states == {"banner": "DISABLED"}
    world.flags(2, flagSpec=switches(banner="of"))
    await world.look()
    assert (world.states, world.defaults) == ({"banner": "DISABLED"}, {"banner": "on"})
    world.objects.forget(DISABLING.key)
    await world.look()
    assert (world.states, world.defaults) == ({"banner": "ENABLED"}, {"banner": "on"})


async def test_a_file_is_looked_at_again_when_its_override_ends() -> None:
    world = FileCluster()
    world.flags(flagSpec=switches(banner="on"))
    world.pods.informer.learn("Pod", pod("a"))
    world.objects.learn(DISABLING)
    await world.look()
    world.time += 29.0
    assert not world.due()
    world.time += 1.0
    assert world.due()


async def test_a_file_has_the_progress_of_a_rollout_and_a_bad_change_beneath_it_stays_promoted() -> None:
    world = FileCluster()
    shard = {"digest": "d", "flagSpec": switches(banner="off")}
    world.objects.learn(thing("FlagShard", "p", shard))
    spec = {"flagSetRef": {"name": "checkout"}, "flags": ["banner"]}
    rollout = thing("FlagRollout", "r", spec, status={"promoted": {"digest": "d", "shard": "p"}})
    world.objects.learn(rollout)
    world.flags(flagSpec=switches(banner="on"))
    world.pods.informer.learn("Pod", pod("a"))
    await world.look()
    assert world.defaults == {"banner": "off"}
    assert not world.due()
    world.flags(2, flagSpec=switches(banner="of"))
    await world.look()
    assert world.defaults == {"banner": "off"}
    world.flags(3, flagSpec=switches(banner="on"))
    checked = {**rollout.status, "verdict": "Pass"}
    world.objects.learn(replace(rollout, status=checked, resource_version="2"))
    await world.look()
    assert not world.due()
    world.objects.learn(replace(rollout, resource_version="3", deleting=True))
    assert world.due()
    await world.look()
    assert world.defaults == {"banner": "on"}
