"""Stock providers that evaluate in process, of four languages, with the variables that injection sets: what
each can do against the proxy without an evaluator beside it (docs/in-process.md).
"""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from tests.cluster.api import Api
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.proxies import ProxyProcess, apply, flags, manifest, proxy
from tests.cluster.replica import run_replica
from tests.foreign.asking import Asked, open_provider
from tests.foreign.languages import missing_tool
from tests.worlds.objects import reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

LANGUAGES = ("python", "node", "java", "go")
IN_PROCESS = "flagd-in-process"
SOON = 8.0
"""Seconds in which a provider without a server would have become ready."""


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if reason := missing_tool(name):
        pytest.skip(f"{name} is not asked: {reason}")
    return name


@pytest.fixture
def shop(cluster: Plane, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    """A flag set, and the variable by which injection has a provider ask for it."""
    apply(cluster, manifest(namespace, "shop", flags("one")))
    monkeypatch.setenv("FLAGD_SOURCE_SELECTOR", f"{namespace}/shop")
    return Namespace(cluster, namespace)


def write(shop: Namespace, value: str) -> None:
    apply(shop.plane, manifest(shop.name, "shop", flags(value)))


def says(provider: Asked) -> Any:
    return provider.ask("string", "hello", "fallback")["value"]


def test_a_provider_follows_changes_and_outlives_the_proxy(
    shop: Namespace, language: str, tmp_path: Path
) -> None:
    with (
        run_replica(ProxyProcess(shop.plane, tmp_path / "proxy")) as process,
        open_provider(language, IN_PROCESS, process.sync) as provider,
    ):
        assert says(provider) == "one"
        # It sends no receipts: its stream is counted, and not what it serves.
        shop.wait("ffc", lambda found: found["status"].get("delivered") == 1, "shop")
        assert shop.get("ffc", "shop")["status"]["served"] == "0/0"
        write(shop, "two")
        within(lambda: says(provider) == "two")
        process.end(signal.SIGKILL)
        write(shop, "three")
        assert says(provider) == "two"
        process.start_again()
        within(lambda: says(provider) == "three")


def test_a_provider_that_starts_without_a_proxy_has_no_last_good_flags(
    shop: Namespace, language: str, tmp_path: Path
) -> None:
    with run_replica(ProxyProcess(shop.plane, tmp_path / "proxy")) as process:
        with open_provider(language, IN_PROCESS, process.sync) as provider:
            assert says(provider) == "one"
        process.end(signal.SIGKILL)
        with (
            pytest.raises(AssertionError, match="no ready"),
            open_provider(language, IN_PROCESS, process.sync, SOON),
        ):
            pass


@pytest.fixture
def enforcing(cluster: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProxyProcess]:
    """A proxy that asks for tokens, over TLS, and the variables with which a provider trusts it."""
    authority, authorities = trustme.CA(), tmp_path / "ca.crt"
    server = authority.issue_cert("127.0.0.1")
    server.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    server.private_key_pem.write_to_path(tmp_path / "tls.key")
    authority.cert_pem.write_to_path(authorities)
    monkeypatch.setenv("FLAGD_TLS", "true")
    monkeypatch.setenv("FLAGD_SERVER_CERT_PATH", str(authorities))
    files = ("--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key"))
    with proxy(cluster, tmp_path / "enforcing", "--auth", "enforce", *files) as process:
        yield process


def test_a_provider_sends_the_token_of_its_service_account(
    shop: Namespace, language: str, enforcing: ProxyProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.apply(*reader("checkout"))
    token = Api(shop.plane).token(shop.name, "checkout", "flagstaff-proxy")
    monkeypatch.setenv("ASK_TOKEN", token)
    # Node's has no option for a header.
    refused = pytest.raises(AssertionError, match="no ready") if language == "node" else None
    with refused or contextlib.nullcontext(), open_provider(language, IN_PROCESS, enforcing.sync) as provider:
        assert says(provider) == "one"
