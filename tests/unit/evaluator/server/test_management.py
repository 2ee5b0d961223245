from __future__ import annotations

from typing import Any

import orjson
import pytest
from openfeature.schemas.protobuf.flagd.evaluation.v2 import evaluation_pb2 as v2
from prometheus_client.parser import text_string_to_metric_families

from evaluator.flags.model import REVISION_KEY, FlagSet
from evaluator.http.messages import Request, Response
from evaluator.http.offload import Offload
from evaluator.server.evaluation import METHODS
from evaluator.server.management import Start, is_ready, routes
from evaluator.store.store import Store
from tests.stores import fail, swap
from tests.unit.evaluator.server.test_ofrep import post
from tests.worlds import evaluator as fakes
from tests.worlds.evaluator import NOW, World, call, flag, flag_set, world


def get(served: World, path: str, *, now: float = NOW, start: Start | None = None) -> Response:
    start = start or Start(served.store)
    table = routes(served.store, served.metrics, Offload(), lambda: now, start)
    answer = table.http["GET", path](Request("GET", path, "", (), b"", "127.0.0.1:1"))
    assert isinstance(answer, Response)
    return answer


def samples(served: World) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = served.metrics.text().decode()
    return {
        (sample.name, tuple(sorted(item for item in sample.labels.items() if item[1]))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }  # fmt: skip


def test_alive_is_always_answered() -> None:
    assert get(world(), "/healthz").status == 200


def test_ready_is_412_until_a_flag_set_is_served() -> None:
    response = get(world(), "/readyz")
    assert response.status == 412
    assert orjson.loads(response.body)["ready"] is False


def test_an_application_may_start_with_flags_or_once_it_has_waited(caplog: pytest.LogCaptureFixture) -> None:
    served = world()
    start = Start(served.store)
    waiting = get(served, "/startz", start=start)
    start.give_up()
    waited = get(served, "/startz", start=start)
    assert (waiting.status, orjson.loads(waiting.body)) == (412, {"started": False, "ready": False})
    assert (waited.status, orjson.loads(waited.body)) == (200, {"started": True, "ready": False})
    assert get(served, "/readyz", start=start).status == 412
    assert "defaults in their code" in caplog.text
    swap(served.store, FlagSet({fakes.BOOLEAN.key: fakes.BOOLEAN}), now=NOW)
    assert get(served, "/startz").status == 200


@pytest.mark.parametrize("late", ["delivers", "fails"])
def test_ready_waits_until_every_source_has_delivered_or_failed(late: str) -> None:
    store = Store(sources=("a", "b"))
    swap(store, FlagSet({fakes.BOOLEAN.key: fakes.BOOLEAN}), now=NOW, source="a")
    before = is_ready(store)
    if late == "fails":
        fail(store, "it hangs", NOW, "b")
    else:
        swap(store, FlagSet(), now=NOW, source="b")
    assert (before, is_ready(store)) == (False, True)


def test_ready_says_what_is_served_and_how_old_it_is() -> None:
    served = world()
    flags = {fakes.BOOLEAN.key: fakes.BOOLEAN}
    snapshot = swap(served.store, FlagSet(flags, metadata={REVISION_KEY: "main@sha1:1"}), now=NOW)
    fail(served.store, "the source is gone", NOW - 60)
    response = get(served, "/readyz")
    body = orjson.loads(response.body)
    assert response.status == 200
    assert body["digest"] == snapshot.digest
    assert (body["revision"], body["ageSeconds"], body["flags"]) == ("main@sha1:1", 60.0, 1)
    assert body["stale"] == {"reason": "the source is gone", "since": NOW - 60}
    (source,) = body["sources"]
    assert (source["name"], source["stale"]) == ("flags.json", body["stale"])


def ask(served: World, key: str) -> Any:
    message = v2.ResolveBooleanRequest(flag_key=key).SerializeToString()
    return served.evaluation.unary("v2", METHODS["ResolveBoolean"])(call(), message)


def test_answers_are_counted_by_flag_variant_and_reason_whatever_the_protocol() -> None:
    served = world(fakes.BOOLEAN)
    ask(served, "boolean")
    ask(served, "boolean")
    post(served, "boolean")
    post(served, None)
    labels = {
        "feature_flag_key": "boolean",
        "feature_flag_provider_name": "flagd",
        "feature_flag_reason": "STATIC",
    }
    counted = samples(served)
    reason = ("feature_flag_flagd_result_reason_total", tuple(sorted(labels.items())))
    variant = {**labels, "feature_flag_result_variant": "on"}
    impression = ("feature_flag_flagd_impression_total", tuple(sorted(variant.items())))
    assert counted[reason] == 4
    assert counted[impression] == 4


def test_errors_are_counted_by_kind_and_not_as_impressions() -> None:
    served = world(*fakes.ALL)
    post(served, "broken")
    counted = samples(served)
    labels = (
        ("ExceptionTypeKeyName", "PARSE_ERROR"),
        ("feature_flag_provider_name", "flagd"),
        ("feature_flag_reason", "ERROR"),
    )
    assert counted["feature_flag_flagd_result_reason_total", labels] == 1
    assert not [name for name, _ in counted if "impression" in name]


def test_keys_that_nobody_defined_add_no_labels() -> None:
    served = world(fakes.BOOLEAN)
    post(served, "unknown-0")
    before = len(samples(served))
    for number in range(1, 200):
        post(served, f"unknown-{number}")
    assert len(samples(served)) == before


def test_a_removed_flag_and_a_removed_variant_take_their_labels_along() -> None:
    served = world(flag("f", {"a": 1, "b": 2}, "a"), fakes.BOOLEAN)
    post(served, None)
    swap(served.store, flag_set(flag("f", {"b": 2}, "b")), now=NOW)
    assert not [name for name, _ in samples(served) if "feature_flag" in name]
    post(served, None)
    assert len([name for name, _ in samples(served) if "impression" in name]) == 1


def test_what_is_served_can_be_read_from_the_metrics() -> None:
    served = world()
    assert ("flagstaff_data_age_seconds", ()) not in samples(served)
    flags = flag_set(fakes.BOOLEAN)
    snapshot = swap(served.store, FlagSet(flags.flags, metadata={REVISION_KEY: "r"}), now=NOW - 5)
    counted = samples(served)
    info = (("digest", snapshot.digest), ("revision", "r"))
    assert counted["flagstaff_served_revision_info", info] == 1
    assert counted["flagstaff_data_age_seconds", ()] == 5
    assert counted["flagstaff_last_success_timestamp_seconds", ()] == NOW - 5
    assert counted["flagstaff_flags", ()] == 1


@pytest.mark.parametrize("key", ["plain", 'a"b', "back\\slash", "line\nbreak", "schlüssel", r"\n"])
def test_any_key_and_variant_can_be_read_back_from_the_metrics(key: str) -> None:
    served = world(flag(key, {key: 1}, key))
    post(served, None)
    labels = {dict(labels).get("feature_flag_result_variant") for _, labels in samples(served)}
    assert key in labels
