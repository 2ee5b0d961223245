"""What browsers speak, with a plain HTTP client: Connect's JSON, and OFREP's event stream."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.clients.server import Server, banner
from tests.worlds.evaluator import flag_set

if TYPE_CHECKING:
    from collections.abc import Iterator

BOOLEAN = "/flagd.evaluation.v2.Service/ResolveBoolean"
JSON = {"content-type": "application/json"}


@pytest.fixture
def evaluation(shop: Server) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", shop.ports.grpc, timeout=10)
    yield connection
    connection.close()


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection.request(method, path, None if body is None else json.dumps(body), JSON)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def test_connect_answers_in_json(evaluation: http.client.HTTPConnection) -> None:
    answer = {"value": True, "variant": "on", "reason": "STATIC"}
    metadata = {"owner": "shop", "flagSetId": "shop"}
    expected = (200, answer | {"metadata": metadata})
    assert ask(evaluation, "POST", BOOLEAN, {"flagKey": "boolean"}) == expected
    query = f"?connect=v1&encoding=json&message={quote(json.dumps({'flagKey': 'boolean'}))}"
    assert ask(evaluation, "GET", BOOLEAN + query) == expected


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({"flagKey": "missing"}, 404, {"code": "not_found", "message": "Flag not found"}),
        ([], 400, {"code": "invalid_argument", "message": "unmarshal message: must be a JSON object"}),
    ],
)  # fmt: skip
def test_connect_names_the_error(
    evaluation: http.client.HTTPConnection, body: Any, status: int, error: dict[str, str]
) -> None:
    assert ask(evaluation, "POST", BOOLEAN, body) == (status, error)


def test_bulk_leads_to_a_stream_that_reports_a_change(shop: Server) -> None:
    bulk = http.client.HTTPConnection("127.0.0.1", shop.ports.ofrep, timeout=10)
    _, body = ask(bulk, "POST", "/ofrep/v1/evaluate/flags", {})
    stream = http.client.HTTPConnection("127.0.0.1", shop.ports.ofrep, timeout=10)
    stream.request("GET", body["eventStreams"][0]["endpoint"]["requestUri"])
    response = stream.getresponse()
    assert response.headers["content-type"] == "text/event-stream"
    first = message_of(response)
    shop.swap(flag_set(banner("party")))
    second = message_of(response)
    assert first["type"] == second["type"] == "refetchEvaluation"
    assert first["etag"] != second["etag"]
    response.close()
    stream.close()
    _, body = ask(bulk, "POST", f"/ofrep/v1/evaluate/flags?flagConfigEtag={second['etag']}", {})
    assert [one["value"] for one in body["flags"]] == ["Hooray"]
    bulk.close()


def message_of(response: http.client.HTTPResponse) -> Any:
    """The content of the next message."""
    for line in iter(response.readline, b""):
        if line.startswith(b"data:"):
            return json.loads(line.removeprefix(b"data:"))
    raise AssertionError("the stream ended")
