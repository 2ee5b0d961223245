"""The flags of a remote provider, as a proxy sends them with an object's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2

from controller.api.featureflagconfiguration import KIND
from tests.worlds.proxy import Scene, flags, keys, sent_values

if TYPE_CHECKING:
    from tests.worlds.evaluator import FakeStream


def learn(scene: Scene, *shards: str, strategy: str = "merge", version: int = 1, **entry: Any) -> None:
    """The object `shop/web` has the flag `hello`, and a provider whose flags stand in `shards`."""
    fetched = [{"name": shard, "digest": shard} for shard in shards]
    body = {
        "apiVersion": "core.openfeature.dev/v1beta1",
        "metadata": {
            "namespace": "shop",
            "name": "web",
            "uid": "u",
            "generation": 1,
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"flagSpec": flags("own"), "remoteFlagProvider": {"type": "http", "strategy": strategy}},
        "status": {"providers": [{"name": "there", "version": "v1", "shards": fetched, **entry}]},
    }
    scene.informer.learn(KIND, body)


def metadata(stream: FakeStream) -> dict[str, Any]:
    """That of the flag `more`, in the last message."""
    document = json.loads(sync_pb2.SyncFlagsResponse.FromString(stream.sent[-1]).flag_configuration)
    found: dict[str, Any] = document["flags"]["more"]["metadata"]
    return found


MORE = {"flags": {"more": flags()["flags"]["hello"]}}


async def test_a_stream_is_sent_remote_flags_once_their_shards_are_there() -> None:
    scene = Scene()
    learn(scene)
    stream = scene.open("shop/web")
    await scene.rest()
    learn(scene, "s", version=2)
    await scene.rest()
    assert keys(stream) == [{"hello"}]
    scene.shard("shop/s", MORE)
    await scene.rest()
    assert keys(stream) == [{"hello"}, {"hello", "more"}]
    assert metadata(stream)["flagstaff.dev/provider"] == "there"


async def test_a_status_that_says_nothing_new_of_the_provider_sends_nothing() -> None:
    scene = Scene()
    scene.shard("shop/s", MORE)
    learn(scene, "s")
    stream = scene.open("shop/web")
    await scene.rest()
    learn(scene, "s", version=2, message="the server is slow", lastUpdateTime="2026-01-01T00:00:00Z")
    await scene.rest()
    assert len(stream.sent) == 1


async def test_flags_that_went_stale_are_sent_with_their_mark() -> None:
    scene = Scene()
    scene.shard("shop/s", MORE)
    learn(scene, "s")
    stream = scene.open("shop/web")
    await scene.rest()
    learn(scene, "s", version=2, staleSince="2026-01-01T00:00:00Z")
    await scene.rest()
    assert metadata(stream)["flagstaff.dev/stale-since"] == "2026-01-01T00:00:00Z"


async def test_a_provider_that_overrides_replaces_the_objects_own_flag() -> None:
    scene = Scene()
    scene.shard("shop/s", flags("theirs"))
    learn(scene, "s", strategy="override")
    stream = scene.open("shop/web")
    await scene.rest()
    assert sent_values(stream) == ["theirs"]


async def test_the_flag_set_id_of_a_provider_claims_nothing() -> None:
    scene = Scene()
    scene.shard("shop/s", {**MORE, "metadata": {"flagSetId": "far"}})
    learn(scene, "s")
    stream = scene.open("flagSetId=far")
    await scene.rest()
    assert stream.sent == []


async def test_an_override_keeps_its_value_when_the_provider_drops_the_flag() -> None:
    scene = Scene()
    scene.shard("shop/s", MORE)
    scene.shard("shop/none", {"flags": {}})
    learn(scene, "s")
    stream = scene.open("shop/web")
    scene.override("shop/kill", "web", flag="more", variant="on")
    await scene.rest()
    learn(scene, "none", version=2)
    await scene.rest()
    assert keys(stream)[-1] == {"hello", "more"}
    assert metadata(stream)["flagstaff.dev/override-hides"] == "ABSENT"
    scene.forget("shop/kill", "FlagOverride")
    await scene.rest()
    assert keys(stream)[-1] == {"hello"}
    scene.proxy.close()
