"""What the client makes of an API server that answers oddly; how it writes is tested on the real one."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from kubernetes.aio import client

from controller.kube.client import Cluster
from controller.runtime.setbacks import Failed, Stalled
from evaluator.http.limits import Limits
from evaluator.http.listener import Listener
from evaluator.http.messages import Response
from evaluator.http.routes import Routes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from evaluator.http.messages import Request

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PATH = "/apis/core.openfeature.dev/v1beta1/namespaces/shop/featureflagconfigurations/c"
ALL = "/apis/core.openfeature.dev/v1beta1/featureflagconfigurations"
OBJECT = ("core.openfeature.dev/v1beta1", "FeatureFlagConfiguration", "shop", "c")
LIST = ("core.openfeature.dev/v1beta1", "featureflagconfigurations", ())
MANIFEST: dict[str, Any] = {
    "apiVersion": "core.openfeature.dev/v1beta1",
    "kind": "FeatureFlagConfiguration",
    "metadata": {"name": "c", "namespace": "shop", "labels": {"flagstaff.dev/flagset": "s"}},
}
OVERTAKEN = (409, {"message": "the object has been modified", "reason": "Conflict"})
CAUSE = {"message": 'conflict with "platform" ', "field": ".spec.flagSpec"}
OWNED = (409, {"message": "conflict", "reason": "Conflict", "details": {"causes": [CAUSE]}})
MADE = (200, MANIFEST)


@contextlib.asynccontextmanager
async def client_of_answers(
    *answers: tuple[int, dict[str, Any]], found: bytes = b""
) -> AsyncIterator[tuple[Cluster, list[str]]]:
    """A client of a server that gives these answers to patches, one after the other, and what it was asked.

    `found` is its answer to all else.
    """
    asked: list[str] = []
    left: Iterator[tuple[int, dict[str, Any]]] = iter(answers)

    def answer_patch(request: Request) -> Response:
        asked.append(request.query)
        status, body = next(left)
        return Response(status, orjson.dumps(body), (("content-type", "application/json"),))

    def answer(_request: Request) -> Response:
        body = found or orjson.dumps(MANIFEST)
        return Response(200, body, (("content-type", "application/json"),))

    others = {("GET", PATH): answer, ("GET", ALL): answer, ("DELETE", PATH): answer}
    routes = Routes(http={("PATCH", PATH): answer_patch, **others})
    listener = Listener(routes, Limits(), name="api")
    port = await listener.start("127.0.0.1", 0)
    configuration = client.Configuration(host=f"http://127.0.0.1:{port}")
    cluster = Cluster(client.ApiClient(configuration))
    try:
        yield cluster, asked
    finally:
        await cluster.close()
        await listener.drain(1.0)


async def test_after_conflicts_the_apply_is_repeated_without_force() -> None:
    async with client_of_answers(OVERTAKEN, OVERTAKEN, MADE) as (cluster, asked):
        assert await cluster.apply(MANIFEST, manager="us") == (MANIFEST, "")
    assert asked == ["fieldManager=us"] * 3


async def test_repeated_conflicts_are_reported_without_naming_a_writer() -> None:
    async with client_of_answers(*[OVERTAKEN] * 4) as (cluster, _):
        with pytest.raises(Failed, match="has been modified"):
            await cluster.apply(MANIFEST, manager="us")


async def test_another_owner_is_named_at_once() -> None:
    async with client_of_answers(OWNED) as (cluster, asked):
        with pytest.raises(Stalled, match='belongs to another: conflict with "platform"'):
            await cluster.apply(MANIFEST, manager="us")
    assert len(asked) == 1


@pytest.mark.parametrize("page", [b"<html>Sign in</html>", b"{}", b"[]", b'{"metadata": 1}'])
@pytest.mark.parametrize("read", ["get", "uid", "everywhere", "present"])
async def test_what_is_no_object_is_a_failure_of_the_api_server(page: bytes, read: str) -> None:
    async with client_of_answers(found=page) as (cluster, _):
        with pytest.raises(Failed, match="is not an object"):
            await getattr(cluster, read)(*(LIST if read in {"everywhere", "present"} else OBJECT))


async def test_the_error_for_an_answer_that_is_no_object_quotes_its_beginning() -> None:
    async with client_of_answers(found=b"<html>Sign in</html>") as (cluster, _):
        with pytest.raises(Failed, match="<html>Sign in"):
            await cluster.uid(*OBJECT)


async def test_a_delete_is_answered_by_a_status() -> None:
    async with client_of_answers(found=b'{"kind": "Status", "status": "Success"}') as (cluster, _):
        await cluster.delete(*OBJECT)
