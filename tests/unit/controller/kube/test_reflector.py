"""What is no list, and comes from whoever stands before the API server, is not taken for an empty cluster."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.aio import client

from controller.kube.reflector import Kind, Reflector
from controller.runtime.setbacks import Failed
from evaluator.http.listener import Listener
from evaluator.http.routes import Limits, Response, Routes

KIND = Kind("flagstaff.dev/v1beta1", "FlagSet", "flagsets")


class Told:
    """What a reflector told, by name."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.lists = 0

    def learn(self, _kind: str, body: dict[str, Any]) -> None:
        self.there.add(body["metadata"]["name"])

    def forget(self, _kind: str, _namespace: str, name: str) -> None:
        self.there.discard(name)

    def listed(self, _kind: str, _namespace: str) -> None:
        self.lists += 1


@pytest.mark.parametrize(
    "page", [b"<html>Sign in</html>", b"{}", b'{"message": "ok"}', b'{"metadata": 1}', b"[]", b""]
)
async def test_nothing_is_forgotten_for_an_answer_that_is_no_list(page: bytes) -> None:
    pages = iter([b'{"metadata": {}, "items": [{"metadata": {"name": "flags"}}]}', page])
    routes = Routes(http={("GET", KIND.path): lambda _: Response(200, next(pages))})
    listener, told = Listener(routes, Limits(), name="api"), Told()
    port = await listener.start("127.0.0.1", 0)
    api = client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{port}"))
    reflector = Reflector(api, KIND, told, clock=lambda: 0.0, random=lambda: 0.0)
    await reflector._list()
    with pytest.raises(Failed):
        await reflector._list()
    assert (told.there, told.lists) == ({"flags"}, 1)
    await api.close()
    await listener.drain(1.0)
