from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1

from evaluator.flags.model import REVISION_KEY
from evaluator.http.messages import Code, Request, RpcError
from evaluator.resolving.resolution import FlagType
from evaluator.server import json_rpc
from evaluator.server.context import ContextSources
from evaluator.server.evaluate_flags import PREFIX, Ofrep
from evaluator.server.evaluation import Evaluation
from evaluator.server.service import EvaluationService
from evaluator.store.query import Query, evaluate, evaluate_all
from evaluator.store.store import Store
from tests.stores import swap
from tests.worlds import evaluator as fakes
from tests.worlds.evaluator import NOW, answer_of, call

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.resolving.resolution import Resolution
    from evaluator.store.query import Observer
    from evaluator.store.snapshot import Snapshot

SEEN = ("boolean", "on", "STATIC", "main@sha1:1", "shop", "user-1")
CONTEXT = {"targetingKey": "user-1"}


def store() -> Store:
    made = Store(sources=("flags.json",))
    flags = fakes.flag_set(*fakes.ALL, **{REVISION_KEY: "main@sha1:1", "flagSetId": "shop"})
    swap(made, flags, now=NOW)
    return made


def snapshot() -> Snapshot:
    found = store().snapshot
    assert found is not None
    return found


def unread() -> dict[str, Any]:
    raise AssertionError("nobody needs the context")


class Exposures:
    """An observer that keeps what an exposure event would hold."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def __call__(self, query: Query, key: str, resolution: Resolution) -> None:
        about = (query.snapshot.revision, query.flag_set_id(resolution), query.context.get("targetingKey"))
        self.seen.append((key, resolution.variant, resolution.reason, *about))


def connect(service: EvaluationService) -> Any:
    asked = orjson.dumps({"flagKey": "boolean", "context": CONTEXT})

    return Evaluation(service, json_rpc).unary("v2", FlagType.BOOLEAN)(call(), asked)


def grpc(service: EvaluationService) -> Any:
    asked = v1.ResolveBooleanRequest(flag_key="boolean")
    asked.context.update(CONTEXT)
    return Evaluation(service).unary("v1", FlagType.BOOLEAN)(call(), asked.SerializeToString())


def grpc_bulk(service: EvaluationService) -> Any:
    asked = v1.ResolveAllRequest()
    asked.context.update(CONTEXT)
    return Evaluation(service).resolve_all(call(), asked.SerializeToString())


def ofrep(service: EvaluationService, path: str = "/boolean") -> Any:
    body = orjson.dumps({"context": CONTEXT})
    request = Request("POST", PREFIX + path, "", (), body, "127.0.0.1:1")
    answers = Ofrep(service)
    return answers.single(request) if path else answers.bulk(request)


def ofrep_bulk(service: EvaluationService) -> Any:
    return ofrep(service, "")


@pytest.mark.parametrize("ask", [connect, grpc, grpc_bulk, ofrep, ofrep_bulk], ids=lambda ask: ask.__name__)
def test_an_observer_sees_every_evaluation_of_every_protocol(ask: Callable[[EvaluationService], Any]) -> None:
    exposures = Exposures()
    sources = ContextSources()
    answer_of(ask(EvaluationService(store(), sources, lambda: NOW, [exposures])))
    assert SEEN in exposures.seen
    if "bulk" in ask.__name__:
        keys = [key for key, *_ in exposures.seen]
        assert keys == sorted(keys)
        assert {"boolean", "broken", "disabled", "targeted"} <= set(keys)
    else:
        assert exposures.seen == [SEEN]


def test_an_observer_sees_errors_and_flags_that_do_not_exist() -> None:
    exposures = Exposures()
    query = Query(snapshot(), "missing", FlagType.STRING, lambda: CONTEXT, int(NOW))
    evaluate(query, [exposures])
    assert exposures.seen == [("missing", None, "ERROR", "main@sha1:1", "shop", "user-1")]


def nobody(_: Query, __: str, ___: Resolution) -> None:
    """Needs nothing."""


@pytest.mark.parametrize("observers", [[], [nobody]], ids=["none", "one without interest"])
def test_a_static_flag_needs_no_context_unless_an_observer_does(observers: list[Observer]) -> None:
    made = snapshot()
    evaluate(Query(made, "boolean", None, lambda: CONTEXT, int(NOW)))
    resolution = evaluate(Query(made, "boolean", None, unread, int(NOW)), observers)
    assert resolution.variant == "on"


def test_the_context_is_decoded_once_however_many_need_it() -> None:
    reads = []

    def read() -> dict[str, Any]:
        reads.append(1)
        return {"tier": "gold", **CONTEXT}

    exposures = Exposures()
    evaluate(Query(snapshot(), "targeted", None, read, int(NOW)), [exposures, exposures])
    assert (len(reads), len(exposures.seen)) == (1, 2)


def test_typed_bulk_leaves_out_flags_without_a_type_and_reports_values_of_another() -> None:
    crossed = fakes.flag("crossed", {"b": True, "n": 1}, "b", targeting={"if": [True, "n"]})
    made = Store()
    swap(made, fakes.flag_set(crossed, fakes.NO_DEFAULT, fakes.STRING), now=NOW)
    assert made.snapshot is not None
    query = Query(made.snapshot, None, None, dict, int(NOW))
    typed = {key: resolution.error_code for key, resolution in evaluate_all(query, typed=True)}
    assert typed == {"crossed": "TYPE_MISMATCH", "string": None}
    assert {key for key, _ in evaluate_all(query)} == {"crossed", "no/default", "string"}


def test_a_query_for_every_flag_is_not_one_for_a_single_flag() -> None:
    with pytest.raises(ValueError, match="every flag"):
        evaluate(Query(snapshot(), None, None, dict, int(NOW)))


def test_decoding_errors_reach_the_caller() -> None:
    def refuse() -> dict[str, Any]:
        raise RpcError(Code.INVALID_ARGUMENT, "too deep")

    with pytest.raises(RpcError):
        evaluate(Query(snapshot(), "targeted", None, refuse, int(NOW)))
