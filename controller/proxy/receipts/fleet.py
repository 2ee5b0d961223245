"""`/fleet` on the management port: every member that this proxy knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from evaluator.http.messages import Response
from evaluator.http.routes import Routes

if TYPE_CHECKING:
    from controller.proxy.receipts.receipts import Receipts
    from evaluator.http.messages import Request


def routes(receipts: Receipts) -> Routes:
    """`GET /fleet`: `{"flagSets": [{"namespace", "name", "digest", "served", "total", "delivered", "members":
    [{"name", "node", "version", "verified", "revision", "digest", "silent", "lagging", "since"}]}]}`.
    """

    def fleet(_: Request) -> Response:
        return Response(200, orjson.dumps(receipts.fleet()), (("content-type", "application/json"),))

    return Routes(http={("GET", "/fleet"): fleet})
