"""Which pages may read an evaluator's answers."""

from __future__ import annotations

import asyncio
import http.client
from typing import Any

import pytest

from controller.local.local_mode import LOCAL_PAGES, evaluator_settings
from evaluator.settings import InvalidSettingError, Settings, from_env
from evaluator.store.store import Store
from evaluator.wiring import serve
from tests.stores import swap
from tests.worlds.evaluator import ALL, NOW, flag_set

ORIGIN = "https://shop.example.com"
PATH = "/ofrep/v1/evaluate/flags"


def ask(port: int, method: str, origin: str) -> tuple[int, str | None]:
    """(status, the origin that may read the answer)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {"origin": origin, "access-control-request-method": "POST"}
    connection.request(method, PATH, headers=headers)
    response = connection.getresponse()
    connection.close()
    return response.status, response.getheader("access-control-allow-origin")


@pytest.mark.parametrize(
    ("origins", "origin", "preflight", "allowed"),
    [
        ((), ORIGIN, 204, "*"),
        (("off",), ORIGIN, 405, None),
        (LOCAL_PAGES, ORIGIN, 204, None),
        (LOCAL_PAGES, "http://localhost:3000", 204, "http://localhost:3000"),
        (LOCAL_PAGES, "http://127.0.0.1", 204, "http://127.0.0.1"),
        (LOCAL_PAGES, "http://localhost.example.com", 204, None),
    ],
    ids=["by default all", "off", "up: elsewhere", "up: a port", "up: an address", "up: a look-alike"],
)
async def test_a_page_may_read_answers_where_its_origin_is_allowed(
    origins: tuple[str, ...], origin: str, preflight: int, allowed: str | None
) -> None:
    store = Store()
    swap(store, flag_set(*ALL), now=NOW)
    ports: dict[str, Any] = dict.fromkeys(("port", "management_port", "sync_port", "ofrep_port"), 0)
    serving = await serve(store, Settings(host="127.0.0.1", cors_origins=origins, **ports))
    try:
        for port in (serving.ports.ofrep, serving.ports.grpc):
            status, found = await asyncio.to_thread(ask, port, "OPTIONS", origin)
            assert (status, found) == (preflight if port == serving.ports.ofrep else status, allowed)
        assert await asyncio.to_thread(ask, serving.ports.ofrep, "POST", origin) == (200, allowed)
    finally:
        await serving.stop()


def status(port: int, path: str, host: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers={"host": host})
    found = connection.getresponse().status
    connection.close()
    return found


async def test_a_page_that_resolves_its_name_to_the_management_port_reads_no_flags() -> None:
    store = Store()
    swap(store, flag_set(*ALL), now=NOW)
    ports: dict[str, Any] = dict.fromkeys(("port", "management_port", "sync_port", "ofrep_port"), 0)
    serving = await serve(store, Settings(host="127.0.0.1", **ports))
    try:
        port = serving.ports.management
        for path, host, expected in (
            ("/flags", "evil.example", 403),
            ("/flags", f"localhost:{port}", 200),
            ("/readyz", "evil.example", 200),
        ):
            assert await asyncio.to_thread(status, port, path, host) == expected
    finally:
        await serving.stop()


def test_up_allows_pages_of_this_machine_unless_others_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLAGD_CORS_ORIGIN", raising=False)
    assert evaluator_settings(host="127.0.0.1").cors_origins == LOCAL_PAGES
    monkeypatch.setenv("FLAGD_CORS_ORIGIN", "*")
    assert evaluator_settings(host="127.0.0.1").cors_origins == ("*",)


def test_off_beside_an_origin_is_refused() -> None:
    with pytest.raises(InvalidSettingError, match="--cors-origin: off stands alone"):
        from_env({"FLAGD_CORS_ORIGIN": "off,https://a.example"})
