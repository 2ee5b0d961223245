"""What streams get of the objects that come, change, break and go. flagd-proxy's defects are here, each as
what must hold instead.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from evaluator.http.messages import Code
from evaluator.wire.sync_messages import METHODS
from tests.worlds.proxy import FEATURE_FLAG, FETCH, OLD_SYNC, SYNC, Scene, flags, keys, large, sent_values

BROKEN: dict[str, Any] = {
    "flags": {"hello": {"state": "ENABLED", "variants": {"on": "x"}, "defaultVariant": "none"}}
}


async def test_a_stream_that_hangs_up_during_a_delivery_delays_no_other() -> None:
    scene = Scene()
    scene.learn("shop/web", flags("0"))
    leaving, staying = scene.open("shop/web", writable=False), scene.open("shop/web")
    scene.learn("shop/web", flags("1"))
    leaving.hang_up()
    scene.learn("shop/web", flags("2"))
    await scene.rest()
    assert (sent_values(staying)[-1], scene.proxy.hub.streams) == ("2", 1)


async def test_streams_that_come_and_go_during_a_delivery_break_nothing() -> None:
    scene = Scene(max_streams=1000, max_streams_per_host=1000)
    scene.learn("shop/web", flags("0"))
    streams = [scene.open("shop/web") for _ in range(300)]
    scene.learn("shop/web", flags("1"))
    for stream in streams[::2]:
        await asyncio.sleep(0)
        stream.hang_up()
        streams.append(scene.open("shop/web"))
    await scene.rest()
    assert {sent_values(each)[-1] for each in streams if each.writable} == {"1"}


async def test_a_stream_may_open_before_its_object_exists_and_affects_no_later_one() -> None:
    scene = Scene()
    early = scene.open("shop/web")
    assert (early.sent, early.ended) == ([], None)
    scene.learn("shop/web", flags("1"))
    await scene.rest()
    assert (sent_values(early), sent_values(scene.open("shop/web"))) == (["1"], ["1"])


async def test_fetching_what_is_not_there_says_so() -> None:
    scene = Scene()
    assert scene.open("shop/web", path=FETCH).ended == (
        Code.NOT_FOUND, "shop/web: there is no such flag set",
    )  # fmt: skip


async def test_a_slow_stream_gets_a_deletion_once_it_reads() -> None:
    scene = Scene()
    scene.learn("shop/web", flags("1"))
    stream = scene.open("shop/web")
    stream.writable = False
    scene.forget("shop/web")
    await scene.rest()
    stream.read()
    assert stream.ended is not None
    assert stream.ended[0] is Code.NOT_FOUND


async def test_a_recreated_object_is_sent_to_streams_that_wait_for_it() -> None:
    scene = Scene()
    scene.learn("shop/web", flags("1"))
    scene.forget("shop/web")
    waiting = scene.open("shop/web")
    scene.learn("shop/web", flags("2"), uid="another")
    await scene.rest()
    assert (sent_values(waiting), waiting.ended) == (["2"], None)


async def test_a_slow_stream_that_misses_a_deletion_gets_what_came_back() -> None:
    scene = Scene()
    scene.learn("shop/web", flags("1"))
    stream = scene.open("shop/web")
    stream.writable = False
    scene.forget("shop/web")
    scene.learn("shop/web", flags("2"), uid="another")
    await scene.rest()
    stream.read()
    assert (sent_values(stream), stream.ended) == (["1", "2"], None)


async def test_a_document_that_cannot_be_read_leaves_everything_as_it_was() -> None:
    scene = Scene()
    scene.learn("shop/web", flags("1"))
    stream = scene.open("shop/web")
    for bad in ({"flags": "none"}, {}, {"flags": {"hello": 3}}):
        scene.learn("shop/web", bad)
        await scene.rest()
    assert (sent_values(stream), sent_values(scene.open("shop/web"))) == (["1"], ["1"])


async def test_a_bad_flag_stays_at_its_last_good_definition_while_its_siblings_move_on() -> None:
    scene = Scene()
    scene.learn("shop/web", flags("1"))
    stream = scene.open("shop/web")
    new = {"variants": {"on": 1}, "defaultVariant": "on"}
    scene.learn("shop/web", {"flags": {**BROKEN["flags"], "new": new}})
    await scene.rest()
    assert (sent_values(stream), keys(stream)[-1]) == (["1", "1"], {"hello", "new"})


async def test_without_a_good_definition_a_bad_flag_is_left_out() -> None:
    scene = Scene()
    scene.learn("shop/web", {"flags": {**BROKEN["flags"], "new": {"variants": {"on": 1}}}})
    assert keys(scene.open("shop/web")) == [{"new"}]


async def test_an_object_that_never_was_good_is_waited_for() -> None:
    scene = Scene()
    scene.learn("shop/web", {"flags": 7})
    stream, fetching = scene.open("shop/web"), scene.open("shop/web", path=FETCH)
    assert fetching.ended is not None
    assert (stream.ended, fetching.ended[0]) == (None, Code.FAILED_PRECONDITION)
    scene.learn("shop/web", flags("1"))
    await scene.rest()
    assert sent_values(stream) == ["1"]


async def test_a_sharded_set_is_sent_whole_or_not_at_all() -> None:
    scene = Scene()
    scene.shard("shop/a1", flags("1"))
    scene.learn("shop/web", {"shards": [{"name": "a1", "digest": "a1"}]})
    stream = scene.open("shop/web")
    await scene.rest()
    scene.learn("shop/web", {"shards": [{"name": n, "digest": n} for n in ("a2", "b2")]})
    scene.shard("shop/a2", flags("2"))
    await scene.rest()
    assert sent_values(stream) == ["1"]
    scene.shard("shop/b2", {"flags": {"more": {"variants": {"on": 1}}}})
    await scene.rest()
    assert (sent_values(stream), keys(stream)[-1]) == (["1", "2"], {"hello", "more"})


async def test_a_configuration_is_served_and_not_a_feature_flag_of_its_name() -> None:
    scene = Scene()
    scene.learn("shop/web", flags("flag"), FEATURE_FLAG)
    stream = scene.open("shop/web")
    scene.learn("shop/web", flags("configuration"))
    scene.learn("shop/web", flags("flag again"), FEATURE_FLAG)
    await scene.rest()
    assert sent_values(stream) == ["flag", "configuration"]
    scene.forget("shop/web")
    await scene.rest()
    assert (sent_values(stream)[-1], stream.ended) == ("flag again", None)


async def test_the_oldest_object_has_the_flag_set_id() -> None:
    scene = Scene()
    scene.learn("b/web", flags("second", flagSetId="id"), creationTimestamp="2026-01-02T00:00:00Z")
    stream = scene.open("flagSetId=id")
    scene.learn("a/web", flags("third", flagSetId="id"), creationTimestamp="2026-01-03T00:00:00Z")
    scene.learn("c/web", flags("first", flagSetId="id"), creationTimestamp="2026-01-01T00:00:00Z")
    await scene.rest()
    assert sent_values(stream) == ["second", "first"]
    scene.forget("c/web")
    await scene.rest()
    assert sent_values(stream)[-1] == "second"


async def test_a_flag_set_id_that_is_given_up_ends_its_streams() -> None:
    scene = Scene()
    scene.learn("shop/web", flags("1", flagSetId="id"))
    stream = scene.open("flagSetId=id")
    scene.learn("shop/web", flags("2", flagSetId="another"))
    await scene.rest()
    assert stream.ended is not None
    assert (sent_values(stream), stream.ended[0]) == (["1"], Code.NOT_FOUND)


@pytest.mark.parametrize("document", [flags, large], ids=["small", "large"])
async def test_each_content_is_built_once_and_the_same_bytes_go_to_all(document: Any) -> None:
    scene = Scene()
    scene.learn("shop/web", document("1") | {"metadata": {"flagSetId": "id"}})
    streams = [scene.open(selector) for selector in ("shop/web", "flagSetId=id") for _ in range(20)]
    await scene.rest()
    assert scene.proxy.deliveries.contents.built == 1
    assert len({id(each.sent[0]) for each in streams}) == 1


async def test_without_subscribers_nothing_is_built() -> None:
    scene = Scene()
    scene.learn("shop/web", flags("1"))
    await scene.rest()
    assert scene.proxy.deliveries.contents.built == 0


async def test_the_last_good_flags_are_kept_for_clients_that_come_back() -> None:
    scene = Scene()
    scene.learn("shop/web", flags("1"))
    scene.open("shop/web").hang_up()
    scene.learn("shop/web", flags("2"))
    scene.learn("shop/web", {"flags": 7})
    await scene.rest()
    assert sent_values(scene.open("shop/web")) == ["2"]


async def test_of_large_sets_that_change_quickly_the_newest_is_sent() -> None:
    scene = Scene()
    scene.learn("shop/web", large("0"))
    stream = scene.open("shop/web")
    for number in range(1, 30):
        scene.learn("shop/web", large(str(number)))
        await asyncio.sleep(0.001)
    await scene.rest()
    received = [int(each) for each in sent_values(stream)]
    assert (received, received[-1]) == (sorted(received), 29)


async def test_a_status_that_is_written_builds_and_sends_nothing() -> None:
    scene = Scene()
    scene.learn("shop/web", flags("1"), generation=7)
    stream = scene.open("shop/web")
    scene.learn("shop/web", flags("1"), generation=7)
    await scene.rest()
    assert (len(stream.sent), scene.proxy.deliveries.contents.built) == (1, 1)


async def test_nothing_is_called_missing_and_no_feature_flag_is_served_before_all_was_listed() -> None:
    scene = Scene(synced=False)
    scene.learn("shop/web", flags("flag"), FEATURE_FLAG)
    stream, fetching = scene.open("shop/web"), scene.open("shop/none", path=FETCH)
    assert fetching.ended is not None
    assert (stream.sent, fetching.ended[0]) == ([], Code.UNAVAILABLE)
    scene.learn("shop/web", flags("configuration"))
    scene.sync()
    await scene.rest()
    assert sent_values(stream) == ["configuration"]


async def test_every_method_of_both_services_is_answered() -> None:
    scene = Scene()
    scene.learn("shop/web", flags("1"))
    assert all(len(scene.open("shop/web", path=method.path).sent) == 1 for method in METHODS)


@pytest.mark.parametrize(
    "selector",
    ["", "web", "file:/etc/passwd", "a/b/c", "../x", "Shop/web", "flagSetId=", "flagSetId=a\nb", "/web",
     "s" * 300],
)  # fmt: skip
async def test_what_is_no_selector_is_refused(selector: str) -> None:
    ended = Scene().open(selector).ended
    assert ended is not None
    assert ended[0] is Code.INVALID_ARGUMENT


async def test_the_digest_that_is_served_is_sent_with_the_flags() -> None:
    scene = Scene()
    scene.learn("shop/web", flags("1"))
    stream = scene.open("shop/web", path=OLD_SYNC)
    delivered = scene.proxy.deliveries.contents.of(("shop", "web"))
    assert delivered is not None
    assert delivered.built is not None
    document = json.loads(delivered.built.document)
    assert document["metadata"]["flagstaff.dev/digest"] == delivered.built.digest
    assert len(stream.sent) == 1


async def test_a_malformed_object_affects_no_other_stream(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.informer.learn("FeatureFlagConfiguration", {"metadata": None})
    scene.learn("shop/web", flags("1"))
    assert sent_values(scene.open("shop/web", path=SYNC)) == ["1"]
    assert "malformed" in caplog.text


async def test_streams_beyond_the_limits_are_refused_and_places_come_free() -> None:
    scene = Scene(max_streams=3, max_streams_per_host=2)
    scene.learn("shop/web", flags("1"))
    first = scene.open("shop/web", host="a")
    ends = [scene.open("shop/web", host=host).ended for host in "aabb"]
    assert [each and each[0] for each in ends] == [
        None,
        *[Code.RESOURCE_EXHAUSTED] * 1,
        None,
        Code.RESOURCE_EXHAUSTED,
    ]
    first.hang_up()
    assert scene.open("shop/web", host="c").ended is None


MARKED: dict[str, Any] = {"labels": {"flagstaff.dev/flagset": "web"}}
WRITTEN: dict[str, Any] = {**MARKED, "managedFields": [{"manager": "flagstaff-flagset/shop/web"}]}


async def test_the_label_of_a_flag_set_alone_gives_nobody_its_name() -> None:
    scene = Scene()
    scene.learn("shop/forged", flags("forged"), **MARKED)
    scene.learn("shop/web-2", flags("1"), **WRITTEN)
    stream = scene.open("shop/web")
    scene.learn("shop/forged", flags("again"), **MARKED)
    await scene.rest()
    assert sent_values(stream) == ["1"]


async def test_the_name_of_a_flag_set_means_the_object_that_it_writes() -> None:
    scene = Scene()
    scene.learn("shop/web", flags("1"), **WRITTEN)
    stream = scene.open("shop/web", host="10.0.0.1")
    scene.learn("shop/web-2", flags("2"), **WRITTEN)
    scene.forget("shop/web")
    await scene.rest()
    scene.learn("shop/web-2", flags("3"), **WRITTEN)
    await scene.rest()
    assert (sent_values(stream), sent_values(scene.open("shop/web"))) == (["1", "2", "3"], ["3"])
    assert [(c.place[1], c.delivered) for c in scene.proxy.receipts.counts() if c.delivered] == [("web-2", 2)]
    scene.forget("shop/web-2")
    await scene.rest()
    assert stream.ended is not None
    assert stream.ended[0] is Code.NOT_FOUND
    scene.learn("shop/web", flags("4"))
    await scene.rest()
    assert sent_values(scene.open("shop/web")) == ["4"]


async def test_of_two_objects_of_a_flag_set_its_name_means_the_one_that_it_still_writes() -> None:
    scene = Scene()
    left = [{"type": "Superseded", "status": "True"}]
    scene.learn("shop/a", flags("a"), **WRITTEN)
    scene.learn("shop/b", flags("b"), **WRITTEN)
    stream = scene.open("shop/web")
    scene.learn("shop/a", flags("a"), **WRITTEN, status={"conditions": left})
    await scene.rest()
    assert sent_values(stream) == ["a", "b"]


async def test_topics_without_subscribers_leave_nothing_behind() -> None:
    scene = Scene()
    for number in range(50):
        scene.open(f"shop/none-{number}").hang_up()
        scene.open(f"flagSetId=none-{number}").hang_up()
    assert (scene.proxy.hub.topics, scene.proxy.hub.streams, scene.proxy.authorizer.limits.taken) == (0, 0, 0)
