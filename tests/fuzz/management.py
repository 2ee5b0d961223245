"""What is asked beside evaluations, `/explain`, `/flags` and health; and what a token server answers us."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, cast

import orjson

from evaluator.http.messages import Code, Request, Response, RpcError
from evaluator.http.offload import Offload
from evaluator.server.evaluate_flags import PREFIX
from evaluator.server.health import SERVICE, HealthService, ServingStatus, routes
from evaluator.server.management import Introspection
from evaluator.sync.config import OAuth
from evaluator.sync.http_source import Client, Tokens
from evaluator.sync.http_source import HttpResponse as TokenResponse
from evaluator.sync.source import SourceFault
from tests.fuzz.requests import served_world
from tests.fuzz.target import Target, Wrong, nothing_fails, same
from tests.worlds.evaluator import ALL, FakeStream, answer_of, call

KEYS = sorted(flag.key for flag in ALL)


@cache
def introspection() -> Introspection:
    """Of what `requests` asks, too."""
    return Introspection(served_world().service, Offload())


def explain(content: bytes) -> None:
    """A question is refused, or answered as OFREP answers it, with steps."""
    with nothing_fails():
        work = introspection().explanation(Request("POST", "/explain", "", (), content, ""))
        found = orjson.loads(work.body if isinstance(work, Response) else work())
    if isinstance(work, Response):
        same((work.status, list(found)), (400, ["error"]), "a refusal")
        return
    if not found["steps"]:
        raise Wrong("no steps")
    asked = orjson.loads(content)
    path = f"{PREFIX}/{asked['flagKey']}"
    if asked.get("type") is None and asked["flagKey"]:
        single = answer_of(served_world().ofrep.single(Request("POST", path, "", (), content, "")))
        alone = orjson.loads(single.body)
        for name in ("key", "value", "errorCode"):
            same(found.get(name), alone.get(name), name)
        same(found.get("variant") or "", alone.get("variant") or "", "variant")


def after(content: bytes) -> None:
    """Any query gets a page: the flags behind some key, in order, and all of them but for it."""
    query = content.decode("latin-1")
    with nothing_fails():
        page = orjson.loads(introspection().list_flags(Request("GET", "/flags", query, (), b"", ""))())
    keys = [flag["key"] for flag in page["flags"]]
    same(keys, KEYS[len(KEYS) - len(keys) :], "the rest of the keys")
    same((page["count"], page["next"]), (len(KEYS), None), "count and next")


def health(content: bytes) -> None:
    """Check says that we serve, or refuses; Watch says that, or that there is no such service."""
    answering = HealthService(served_world().store)
    asked, stream = routes(answering), FakeStream()
    try:
        checked = asked.unary[f"/{SERVICE}/Check"](call(), content)
    except RpcError as error:
        if error.code is Code.INVALID_ARGUMENT:
            return
        same(error.code, Code.NOT_FOUND, "the refusal")
        checked = ServingStatus.SERVICE_UNKNOWN.message
    else:
        same(checked, ServingStatus.SERVING.message, "the answer")
    asked.streams[f"/{SERVICE}/Watch"](call(), content, stream)
    same(stream.sent, [checked], "what Watch says")
    answering.close()


class Answering:
    """A client whose every answer is the same."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def request(self, *_: object) -> TokenResponse:
        return TokenResponse(200, {}, self._body, ends=True)


def token(content: bytes) -> None:
    """An answer has a token that can stand in a header, or is a fault of the source that does not
    quote it.
    """
    oauth = OAuth("http://tokens.example", "id", "secret")
    tokens = Tokens(oauth, lambda: 0.0)
    asking = tokens.token(cast("Client", Answering(content)))
    try:
        asking.send(None)
    except StopIteration as end:
        found = cast("Any", end.value)
        same(found, json.loads(content)["access_token"], "the token")
        if any(character in found for character in "\r\n\0"):
            raise Wrong("a token that no header can carry") from None
    except SourceFault as fault:
        if len(content) > 20 and content.decode("latin-1") in str(fault):
            raise Wrong("the answer is quoted") from fault
    finally:
        asking.close()


TARGETS = {
    "explain": Target(explain, ('{"flagKey":"targeted","context":{"tier":"gold"}}', '"type":"boolean"',
                                '"type":"object"', "no/default", "gone-variant", "broken", "null", "[[")),
    "after": Target(after, ("after=", "after=boolean", "&after=string", "%00", "%ff", "+", "%C3%9F")),
    "health": Target(health, (b"\x0a\x00", b"\x0a\x16grpc.health.v1.Health", b"\x0a\x05other", b"\x12\x01x")),
    "token": Target(token, ('{"access_token":"abc","expires_in":3600,"token_type":"Bearer"}', '"expires_in":',
                            "1e400", "9" * 400, "-1", "true", "\\n")),
}  # fmt: skip
