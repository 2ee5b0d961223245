from __future__ import annotations

import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson
import pytest
from openfeature.schemas.protobuf.flagd.evaluation.v2 import evaluation_pb2 as v2
from prometheus_client.parser import text_string_to_metric_families

from evaluator.flags.model import REVISION_KEY, FlagSet
from evaluator.http.routes import Request, Response, at_once
from evaluator.resolve import EvaluationReason, Resolution
from evaluator.server import families, metrics
from evaluator.server.evaluation import METHODS
from evaluator.server.families import imported
from evaluator.server.management import is_ready, routes
from evaluator.store import Store

from . import fakes
from .fakes import NOW, World, call, flag, flag_set, settled, world
from .test_ofrep import post

if TYPE_CHECKING:
    from pathlib import Path


def get(served: World, path: str, *, now: float = NOW) -> Response:
    table = routes(served.store, served.metrics, lambda: now)
    answer = settled(table.http["GET", path](Request("GET", path, "", (), b"", "127.0.0.1:1")))
    assert isinstance(answer, Response)
    return answer


def samples(served: World) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = get(served, "/metrics").body.decode()
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


@pytest.mark.parametrize("late", ["delivers", "fails"])
def test_ready_waits_until_every_source_has_delivered_or_failed(late: str) -> None:
    store = Store(sources=("a", "b"))
    store.swap(FlagSet({fakes.BOOLEAN.key: fakes.BOOLEAN}), now=NOW, source="a")
    before = is_ready(store)
    if late == "fails":
        store.mark_stale("it hangs", NOW, "b")
    else:
        store.swap(FlagSet(), now=NOW, source="b")
    assert (before, is_ready(store)) == (False, True)


def test_ready_tells_what_is_served_and_how_old_it_is() -> None:
    served = world()
    flags = {fakes.BOOLEAN.key: fakes.BOOLEAN}
    snapshot = served.store.swap(FlagSet(flags, metadata={REVISION_KEY: "main@sha1:1"}), now=NOW)
    served.store.mark_stale("the source is gone", NOW - 60)
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


def test_answers_kept_are_bounded_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_REMEMBERED", 2)
    kept: dict[Resolution, metrics.Encoded] = {}
    for _ in range(5):
        one = Resolution(True, "on", EvaluationReason.STATIC)
        metrics.remember(kept, one, (b"", metrics.Tally()))
        assert one in kept
        assert len(kept) <= 2


def test_a_removed_flag_and_a_removed_variant_take_their_labels_along() -> None:
    served = world(flag("f", {"a": 1, "b": 2}, "a"), fakes.BOOLEAN)
    post(served, None)
    served.store.swap(flag_set(flag("f", {"b": 2}, "b")), now=NOW)
    assert not [name for name, _ in samples(served) if "feature_flag" in name]
    post(served, None)
    assert len([name for name, _ in samples(served) if "impression" in name]) == 1


def test_what_is_served_can_be_read_from_the_metrics() -> None:
    served = world()
    assert ("flagstaff_data_age_seconds", ()) not in samples(served)
    flags = flag_set(fakes.BOOLEAN)
    snapshot = served.store.swap(FlagSet(flags.flags, metadata={REVISION_KEY: "r"}), now=NOW - 5)
    counted = samples(served)
    info = (("digest", snapshot.digest), ("revision", "r"))
    assert counted["flagstaff_served_revision_info", info] == 1
    assert counted["flagstaff_data_age_seconds", ()] == 5
    assert counted["flagstaff_last_success_timestamp_seconds", ()] == NOW - 5
    assert counted["flagstaff_flags", ()] == 1


def test_the_client_is_imported_in_a_thread_while_the_first_scrape_takes_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"client_{uuid4().hex}"
    (tmp_path / f"{name}.py").write_text("import threading\nthread = threading.current_thread()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(families, "_CLIENT", name)
    served = world()
    at_once(served.metrics.text())
    assert import_module(name).thread is not threading.current_thread()
    assert not list(imported())


@pytest.mark.parametrize("key", ["plain", 'a"b', "back\\slash", "line\nbreak", "schlüssel", r"\n"])
def test_what_is_written_by_hand_reads_as_the_families_do(key: str) -> None:
    served = world(flag(key, {key: 1}, key), fakes.BROKEN)
    post(served, None)
    families = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in served.metrics.collect()
        for sample in family.samples
        if sample.name.startswith("feature_flag_flagd")
    }
    written = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(get(served, "/metrics").body.decode())
        for sample in family.samples
        if sample.name.startswith("feature_flag_flagd")
    }
    assert len(written) == 3
    assert written == families
