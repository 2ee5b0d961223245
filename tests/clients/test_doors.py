"""Every way in: each port as a Unix socket, each with a certificate of its own, asked by stock clients; and
what they leave behind.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import ssl
import subprocess
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2, evaluation_pb2_grpc
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from tests.clients.evaluator import evaluator
from tests.clients.server import until
from tests.clients.test_evaluator import ready
from tests.clients.up import banner
from tests.clients.upstreams import replace
from tests.unit.evaluator.http import certificates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SOURCE = ("-f", "file:flags.json")
SOCKETS = {"grpc": "--socket-path", "sync": "--sync-socket-path", "ofrep": "--ofrep-socket-path"}
CERTIFICATES = {
    "grpc": "server",
    "sync": "server",
    "ofrep": "ofrep-server",
    "management": "management-server",
}
"""By door, the options that its certificate and key are named after."""


def curl(*words: str) -> Any:
    command = ["curl", "-sS", "--max-time", "20", *words]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def resolve_banner(channel: grpc.Channel) -> str:
    with channel:
        request = evaluation_pb2.ResolveStringRequest(flag_key="banner")
        answer = evaluation_pb2_grpc.ServiceStub(channel).ResolveString(request, timeout=20)
    return str(answer.value)


def fetch_flags(channel: grpc.Channel) -> str:
    with channel:
        stub = sync_pb2_grpc.FlagSyncServiceStub(channel)
        document = stub.FetchAllFlags(sync_pb2.FetchAllFlagsRequest(), timeout=20)
    flag = json.loads(document.flag_configuration)["flags"]["banner"]
    return str(flag["variants"][flag["defaultVariant"]])


def evaluate_banner(*words: str) -> str:
    return str(curl(*words, "-d", "{}")["value"])


EVALUATE = "/ofrep/v1/evaluate/flags/banner"
OVER_SOCKETS: dict[str, Callable[[Path], str]] = {
    "grpc": lambda path: resolve_banner(grpc.insecure_channel(f"unix:{path}")),
    "sync": lambda path: fetch_flags(grpc.insecure_channel(f"unix:{path}")),
    "ofrep": lambda path: evaluate_banner("--unix-socket", str(path), f"http://evaluator{EVALUATE}"),
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_each_socket_takes_the_place_of_a_port_and_none_is_left_behind(
    tmp_path: Path, number: signal.Signals
) -> None:
    replace(tmp_path / "flags.json", banner("plain"))
    words = [word for door, option in SOCKETS.items() for word in (option, f"{door}.sock")]
    with evaluator(*SOURCE, *words, cwd=tmp_path) as running:
        ports = ready(running)
        for door, ask in OVER_SOCKETS.items():
            path = tmp_path / f"{door}.sock"
            assert (ports[door], path.stat().st_mode & 0o777) == (0, 0o660)
            assert (door, ask(path)) == (door, "Welcome")
        assert running.stop(number) == 0
    assert list(tmp_path.glob("*.sock")) == []


def test_sockets_that_a_killed_evaluator_left_are_replaced(tmp_path: Path) -> None:
    replace(tmp_path / "flags.json", banner("plain"))
    words = [word for door, option in SOCKETS.items() for word in (option, f"{door}.sock")]
    with evaluator(*SOURCE, *words, cwd=tmp_path) as running:
        ready(running)
        running.stop(signal.SIGKILL)
    assert len(list(tmp_path.glob("*.sock"))) == len(SOCKETS)
    with evaluator(*SOURCE, *words, cwd=tmp_path) as running:
        ready(running)
        answers = [ask(tmp_path / f"{door}.sock") for door, ask in OVER_SOCKETS.items()]
    assert answers == ["Welcome"] * len(SOCKETS)


class Secured:
    """An evaluator with a certificate for each option, and its ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: dict[str, int] = {}
        (folder / "ca.pem").write_bytes(certificates.ca_of())
        for name in set(CERTIFICATES.values()):
            self.issue(name, "first")

    @property
    def words(self) -> list[str]:
        names = sorted(set(CERTIFICATES.values()))
        return [f"--{name}-{kind}-path={name}.{kind}" for name in names for kind in ("cert", "key")]

    def issue(self, name: str, which: str) -> bytes:
        """Have another certificate where `name` is read from, as DER."""
        leaf = certificates.issue(f"{name}-{which}")
        replace(self.folder / f"{name}.key", certificates.key_of(leaf).decode())
        replace(self.folder / f"{name}.cert", certificates.certificate_of(leaf).decode())
        return ssl.PEM_cert_to_DER_cert(certificates.certificate_of(leaf).decode())

    def shown_certificate(self, door: str) -> bytes:
        """The certificate that a new connection is shown, once it has been verified."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        with (
            socket.create_connection(("127.0.0.1", self.ports[door]), timeout=20) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            return secured.getpeercert(binary_form=True) or b""

    def channel(self, door: str) -> grpc.Channel:
        credentials = grpc.ssl_channel_credentials(certificates.ca_of())
        return grpc.secure_channel(f"localhost:{self.ports[door]}", credentials)

    def curl(self, door: str, path: str) -> tuple[str, str, str]:
        return "--cacert", str(self.folder / "ca.pem"), f"https://localhost:{self.ports[door]}{path}"


OVER_TLS: dict[str, Callable[[Secured], object]] = {
    "grpc": lambda door: resolve_banner(door.channel("grpc")),
    "sync": lambda door: fetch_flags(door.channel("sync")),
    "ofrep": lambda door: evaluate_banner(*door.curl("ofrep", EVALUATE)),
    "management": lambda door: curl(*door.curl("management", "/readyz"))["ready"],
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    replace(folder / "flags.json", banner("plain"))
    found = Secured(folder)
    with evaluator(*SOURCE, *found.words, cwd=folder) as running:
        found.ports = ready(running)
        yield found


@pytest.mark.parametrize("door", OVER_TLS)
def test_each_port_is_asked_over_tls(secured: Secured, door: str) -> None:
    assert OVER_TLS[door](secured) in {"Welcome", True}


@pytest.mark.parametrize("door", OVER_TLS)
def test_no_port_with_a_certificate_answers_in_cleartext(secured: Secured, door: str) -> None:
    with socket.create_connection(("127.0.0.1", secured.ports[door]), timeout=20) as plain:
        plain.sendall(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert not plain.recv(100).startswith(b"HTTP/")


@pytest.mark.parametrize("door", CERTIFICATES)
def test_a_rotated_certificate_is_shown_at_its_own_door(secured: Secured, door: str) -> None:
    others = {other: secured.shown_certificate(other) for other in CERTIFICATES}
    wanted = secured.issue(CERTIFICATES[door], f"{door} {token_hex(4)}")
    assert until(lambda: secured.shown_certificate(door) == wanted)
    for other, before in others.items():
        if CERTIFICATES[other] != CERTIFICATES[door]:
            assert (other, secured.shown_certificate(other)) == (other, before)
    assert OVER_TLS[door](secured) in {"Welcome", True}
