"""Against a receiver that speaks the collector's own API."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import trustme
from openfeature.schemas.protobuf.flagd.evaluation.v2 import evaluation_pb2 as v2

from evaluator.http.messages import Call, Request, RpcError
from evaluator.http.routes import Routes
from evaluator.server import evaluate_flags as ofrep
from evaluator.server.context import ContextSources
from evaluator.server.evaluate_flags import Ofrep
from evaluator.server.evaluation import METHODS, Evaluation
from evaluator.server.metrics import Metrics
from evaluator.server.service import EvaluationService
from evaluator.settings import InvalidSettingError, OtelSettings, load
from evaluator.store.store import Store
from evaluator.telemetry.observed import open_session
from tests.stores import swap
from tests.unit.evaluator.telemetry.receiver import Receiver, attributes
from tests.worlds import evaluator as fakes
from tests.worlds.evaluator import NOW

if TYPE_CHECKING:
    from pathlib import Path

    from evaluator.http.messages import Headers
    from evaluator.telemetry.session import Session

PATH = "/flagd.evaluation.v2.Service/ResolveString"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = (("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01"),)
SECONDS = 10.0


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")


class Evaluator:
    """Handlers that are traced and measured, without ports."""

    def __init__(self, settings: OtelSettings, *, metered: bool = True) -> None:
        store = Store(sources=("repo",))
        swap(store, fakes.flag_set(*fakes.ALL, flagSetId="shop"), now=NOW)
        metrics = Metrics(store, lambda: NOW)
        opened = open_session(settings, metrics if metered else None, lambda: NOW)
        assert opened is not None
        self.session: Session = opened
        observers = (metrics.count, opened.tracing.describe)
        service = EvaluationService(store, ContextSources(), lambda: NOW, observers)
        answers = Evaluation(service)
        rpcs = Routes(unary={PATH: answers.unary("v2", METHODS["ResolveString"])})
        self.rpcs = opened.tracing.routes(metrics.requests.measure(rpcs))
        plain = ofrep.routes(Ofrep(service), None)
        self.plain = opened.tracing.routes(plain)

    def ask(self, key: str, headers: Headers = ()) -> None:
        message = v2.ResolveStringRequest(flag_key=key, context={"tier": "gold"})  # type: ignore[arg-type]  # protobuf takes a dict
        self.rpcs.unary[PATH](Call(PATH, headers, ""), message.SerializeToString())

    def post(self, key: str, headers: Headers = ()) -> None:
        path = f"{ofrep.PREFIX}/{key}"
        request = Request("POST", path, "", headers, b'{"context":{"tier":"gold"}}', "")
        self.plain.http["POST", f"{ofrep.PREFIX}/*"](request)


def evaluator_for(receiver: Receiver, **settings: Any) -> Evaluator:
    return Evaluator(OtelSettings(collector_uri=receiver.address, **settings))


def test_without_a_collector_nothing_is_set_up() -> None:
    assert open_session(OtelSettings(), None, lambda: NOW) is None


def test_a_span_describes_the_evaluation_and_belongs_to_the_callers_trace(receiver: Receiver) -> None:
    evaluator = evaluator_for(receiver)
    evaluator.ask("targeted", PARENT)
    evaluator.session.close(SECONDS)
    ((scope, span),) = receiver.spans
    assert (scope, span.name, span.kind) == ("flagd.evaluation.v2", "resolveString", 2)
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, "00f067aa0ba902b7")
    values = attributes(span)
    assert values["feature_flag.key"] == "targeted"
    assert values["feature_flag.result.variant"] == "yes"
    assert values["feature_flag.result.reason"] == "targeting_match"
    assert values["feature_flag.provider.name"] == "flagd"
    assert values["feature_flag.set.id"] == "shop"
    assert values["rpc.grpc.status_code"] == 0


def test_a_span_of_ofrep_has_the_route_and_not_the_path(receiver: Receiver) -> None:
    evaluator = evaluator_for(receiver)
    evaluator.post("missing")
    evaluator.session.close(SECONDS)
    ((scope, span),) = receiver.spans
    values = attributes(span)
    assert (scope, span.name) == ("flagd.ofrep", "flagd.ofrep")
    assert values["http.route"] == "/ofrep/v1/evaluate/flags/{key}"
    assert (values["http.response.status_code"], values["error.type"]) == (404, "flag_not_found")


@pytest.mark.parametrize(
    ("key", "code", "ours"), [("missing", 5, False), ("broken", 15, True)], ids=["asked", "rule"]
)
def test_only_our_own_errors_make_a_span_one(receiver: Receiver, key: str, code: int, *, ours: bool) -> None:
    evaluator = evaluator_for(receiver)
    with pytest.raises(RpcError):
        evaluator.ask(key)
    evaluator.session.close(SECONDS)
    ((_, span),) = receiver.spans
    assert attributes(span)["rpc.grpc.status_code"] == code
    assert (span.status.code == 2) == ours


def test_no_span_holds_the_context(receiver: Receiver) -> None:
    evaluator = evaluator_for(receiver)
    evaluator.ask("targeted")
    evaluator.post("targeted")
    evaluator.session.close(SECONDS)
    assert len(receiver.spans) == 2
    assert not [span for _, span in receiver.spans if b"gold" in span.SerializeToString()]


def test_metrics_have_flagds_names_units_and_attributes(receiver: Receiver) -> None:
    evaluator = evaluator_for(receiver)
    evaluator.ask("targeted")
    receiver.wait(lambda: receiver.metrics)
    evaluator.session.close(SECONDS)
    metrics = receiver.metrics[-1]
    impression = metrics["feature_flag.flagd.impression"]
    assert (impression.unit, impression.sum.is_monotonic) == ("{impression}", True)
    (point,) = impression.sum.data_points
    assert point.as_int == 1
    assert attributes(point) == {
        "feature_flag.key": "targeted", "feature_flag.result.variant": "yes",
        "feature_flag.provider.name": "flagd", "feature_flag.reason": "TARGETING_MATCH",
    }  # fmt: skip
    (reason,) = metrics["feature_flag.flagd.result.reason"].sum.data_points
    assert "ExceptionTypeKeyName" not in attributes(reason)


def test_histograms_arrive_with_their_buckets(receiver: Receiver) -> None:
    evaluator = evaluator_for(receiver)
    for _ in range(3):
        evaluator.ask("string")
    evaluator.session.close(SECONDS)
    duration = receiver.metrics[-1]["http.server.request.duration"]
    (point,) = duration.histogram.data_points
    assert (duration.unit, point.count, sum(point.bucket_counts)) == ("s", 3, 3)
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert point.explicit_bounds[0] == 0.005
    assert attributes(point)["http.route"] == PATH


def test_a_histogram_claims_no_extremes_that_were_not_kept(receiver: Receiver) -> None:
    evaluator = evaluator_for(receiver)
    evaluator.ask("string")
    evaluator.session.close(SECONDS)
    (point,) = receiver.metrics[-1]["http.server.request.duration"].histogram.data_points
    assert [point.HasField(extreme) for extreme in ("min", "max")] == [False, False]


def test_our_own_metrics_are_sent_under_our_name(receiver: Receiver) -> None:
    evaluator_for(receiver).session.close(SECONDS)
    age = receiver.metrics[-1]["flagstaff.source_data_age_seconds"]
    (point,) = age.gauge.data_points
    assert (age.unit, attributes(point)) == ("s", {"source": "repo"})


def test_metrics_are_sent_only_where_they_are_asked_for(receiver: Receiver) -> None:
    evaluator = Evaluator(OtelSettings(collector_uri=receiver.address), metered=False)
    evaluator.ask("string")
    evaluator.session.close(SECONDS)
    assert receiver.spans
    assert not receiver.metrics


def test_the_sdks_environment_is_honoured(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop-flags")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=checkout")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    evaluator = evaluator_for(receiver)
    evaluator.ask("string")
    evaluator.session.close(SECONDS)
    assert receiver.resources[-1]["service.name"] == "shop-flags"
    assert receiver.resources[-1]["team"] == "checkout"
    assert receiver.headers[-1]["x-tenant"] == "blue"
    assert not receiver.spans


def test_without_it_the_service_is_flagd(receiver: Receiver) -> None:
    evaluator_for(receiver).session.close(SECONDS)
    assert receiver.resources[-1]["service.name"] == "flagd"
    assert receiver.resources[-1]["service.version"]


def identity(authority: trustme.CA, folder: Path, name: str) -> dict[str, str]:
    issued = authority.issue_cert(common_name=name, organization_name="x")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    return {
        "ca_path": str(folder / "ca.pem"), "key_path": str(folder / "key.pem"),
        "cert_path": str(folder / "cert.pem"),
    }  # fmt: skip


def test_certificates_are_shown_and_read_again_when_they_change(tmp_path: Path) -> None:
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    pair = (server.private_key_pem.bytes(), server.cert_chain_pems[0].bytes())
    credentials = grpc.ssl_server_credentials([pair], authority.cert_pem.bytes(), True)
    receiver = Receiver(credentials)
    evaluator = evaluator_for(receiver, reload_interval=0.01, **identity(authority, tmp_path, "one"))
    receiver.wait(lambda: "one" in receiver.peers)
    identity(authority, tmp_path, "two")
    receiver.wait(lambda: "two" in receiver.peers)
    evaluator.session.close(SECONDS)
    receiver.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cert_path": "c.pem"}, "belong together"),
        ({"ca_path": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
        ({"protocol": "http/protobuf"}, "by gRPC only"),
    ],
    ids=["half a pair", "no file", "protocol"],
)
def test_what_cannot_be_used_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidSettingError, match=said):
        open_session(OtelSettings(collector_uri="localhost:1", **given), None, lambda: NOW)  # type: ignore[arg-type]  # of texts alone


def test_an_interval_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "often")
    with pytest.raises(InvalidSettingError, match="milliseconds"):
        open_session(OtelSettings(collector_uri="localhost:1"), None, lambda: NOW)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("evaluator.telemetry.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(InvalidSettingError, match=r"pip install .*\[otel\]"):
        open_session(OtelSettings(collector_uri="localhost:1"), None, lambda: NOW)


def test_by_flagds_option_flags_are_served_without_the_extra(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [name for name in sys.modules if name.startswith("evaluator.telemetry.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    settings = load({"otel-collector-uri": ["localhost:1"], "metrics-exporter": ["otel"]}, {}).settings
    assert open_session(settings.otel, None, lambda: NOW) is None
    assert "[otel]" in caplog.text
    named = load({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:1"}).settings
    with pytest.raises(InvalidSettingError):
        open_session(named.otel, None, lambda: NOW)


def test_a_collector_that_is_gone_costs_the_caller_nothing_but_the_wait_at_the_end() -> None:
    evaluator = Evaluator(OtelSettings(collector_uri="127.0.0.1:1"))
    evaluator.ask("string")
    evaluator.session.close(0.02)
    evaluator.ask("string")
