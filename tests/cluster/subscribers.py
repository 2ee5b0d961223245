"""Those who follow a proxy in the tests: our evaluator and a stock provider, through a relay that can be cut
and pointed at another proxy.
"""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType

from tests.clients.asking import served_value
from tests.clients.evaluator import evaluator
from tests.cluster.patience import within
from tests.cluster.proxies import ProxyProcess, apply, flags, manifest
from tests.cluster.relay import relay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from openfeature.client import OpenFeatureClient

    from tests.cluster.plane import Plane
    from tests.cluster.relay import Relay

NAME = "shop"


class Following:
    """A running evaluator, and what it says of its one source."""

    def __init__(self, ports: dict[str, Any]) -> None:
        self.ofrep: int = ports["ofrep"]
        self.management: int = ports["management"]

    @property
    def value(self) -> str:
        """What the flag `hello` is now; empty where there is none."""
        try:
            return str(served_value(self.ofrep, "hello"))
        except KeyError:
            return ""

    def source(self) -> dict[str, Any]:
        """The source as /readyz has it."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.management}/readyz") as answer:
                page = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                page = json.load(error)
        found: dict[str, Any] = page["sources"][0]
        return found

    def becomes(self, state: str) -> None:
        """Wait until the source is in this state."""
        within(lambda: self.source()["state"] == state, self.source)

    def serves(self, value: str) -> None:
        """Wait until the flag is this."""
        within(lambda: self.value == value, self.source)


@contextlib.contextmanager
def run_subscriber(folder: Path, namespace: str, port: int, **more: Any) -> Iterator[Following]:
    """An evaluator that follows `NAME` in a namespace from the server at `port`; `more` are fields of its
    source.
    """
    source = {
        "uri": f"127.0.0.1:{port}", "provider": "grpc", "selector": f"{namespace}/{NAME}", **more,
    }  # fmt: skip
    with evaluator("--sources", json.dumps([source]), cwd=folder) as running:
        yield Following(running.next_event("listening"))


@contextlib.contextmanager
def stock(namespace: str, port: int) -> Iterator[OpenFeatureClient]:
    """OpenFeature's own client, evaluating by itself what it gets from the server at `port`."""
    provider = FlagdProvider(
        host="127.0.0.1",
        port=port,
        resolver_type=ResolverType.IN_PROCESS,
        selector=f"{namespace}/{NAME}",
        retry_backoff_ms=50,
        retry_backoff_max_ms=200,
    )
    api.set_provider_and_wait(provider, domain=namespace)
    try:
        yield api.get_client(domain=namespace)
    finally:
        provider.shutdown()


class Subscribers:
    """A namespace with a flag set, the proxy that serves it, and networks on both of the proxy's sides."""

    def __init__(
        self, plane: Plane, namespace: str, folder: Path, networks: tuple[Relay, Relay], *words: str
    ) -> None:
        self.plane = plane
        self.namespace = namespace
        self.control, self.service = networks
        via = f"https://127.0.0.1:{self.control.port}"
        self.proxy = ProxyProcess(plane, folder, *words, via=via)

    def start(self) -> None:
        """Start the proxy, again if it was ended."""
        self.proxy.start()
        self.service.target = self.proxy.sync

    def put(self, text: str) -> None:
        """From here on the flag is this."""
        apply(self.plane, manifest(self.namespace, NAME, flags(text)))

    def delete(self) -> None:
        """The object goes."""
        self.plane.kubectl("delete", "featureflagconfiguration", NAME, "-n", self.namespace)

    def reconnect(self) -> None:
        """Every subscriber has to come back."""
        self.service.cut()
        self.service.mend()


@contextlib.contextmanager
def scene(plane: Plane, namespace: str, folder: Path, *words: str) -> Iterator[Subscribers]:
    """A proxy with `words` on its command line for as long as the block lasts."""
    with relay(plane.port) as control, relay(0) as service:
        found = Subscribers(plane, namespace, folder / "proxy", (control, service), *words)
        with contextlib.closing(found.proxy):
            found.start()
            yield found
