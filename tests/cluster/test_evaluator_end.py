"""Our evaluator and a stock provider behind one proxy, whatever becomes of the proxy, its API server, the
object, tokens and certificates.
"""

from __future__ import annotations

import signal
import ssl
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest
import trustme

from tests.cluster.controllers import FLAGSTAFF
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.subscribers import NAME, Following, Subscribers, run_subscriber, scene, stock
from tests.worlds.objects import reader, secret

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from openfeature.client import OpenFeatureClient

    from tests.cluster.plane import Plane

AUDIENCE = "flagstaff-proxy"
ENFORCED = ("--auth", "enforce", "--auth-audiences", AUDIENCE)
ACCOUNT = "checkout"


class Both(NamedTuple):
    """The two who follow one flag set."""

    world: Subscribers
    ours: Following
    stock: OpenFeatureClient

    def see(self, value: str) -> None:
        """Wait until both do."""
        self.ours.serves(value)
        within(lambda: self.stock.get_string_value("hello", "") == value)

    def stay(self, value: str) -> None:
        """Both have it now."""
        assert (self.ours.value, self.stock.get_string_value("hello", "")) == (value, value)


@pytest.fixture
def both(cluster: Plane, namespace: str, tmp_path: Path) -> Iterator[Both]:
    with scene(cluster, namespace, tmp_path) as world:
        world.put("one")
        port = world.service.port
        with run_subscriber(tmp_path, namespace, port) as ours, stock(namespace, port) as client:
            found = Both(world, ours, client)
            found.see("one")
            yield found


def test_a_change_reaches_both(both: Both) -> None:
    both.world.put("two")
    both.see("two")
    assert both.ours.source()["state"] == "current"


@pytest.mark.slow
def test_a_proxy_that_is_killed_and_comes_back_has_them_again_at_the_newest(both: Both) -> None:
    both.world.proxy.end(signal.SIGKILL)
    both.ours.becomes("down")
    both.stay("one")
    both.world.put("two")
    both.world.start()
    both.see("two")
    both.ours.becomes("current")


@pytest.mark.long
def test_a_deletion_leaves_the_last_good_flags_and_says_so_until_the_object_is_there_again(
    both: Both,
) -> None:
    both.world.delete()
    both.ours.becomes("deleted")
    both.stay("one")
    assert "deleted: NotFound" in list_flags(both.ours)
    both.world.put("two")
    both.see("two")
    both.ours.becomes("current")


def list_flags(ours: Following) -> str:
    """What `flagstaff flags` prints."""
    command = [FLAGSTAFF, "flags", "--to", f"127.0.0.1:{ours.management}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.long
def test_an_object_deleted_during_a_disconnection_is_deleted_too(both: Both) -> None:
    both.world.service.cut()
    both.ours.becomes("down")
    both.world.delete()
    both.world.service.mend()
    both.ours.becomes("deleted")
    assert both.ours.value == "one"


def test_flags_that_were_written_away_are_gone(both: Both) -> None:
    patch = '[{"op": "replace", "path": "/spec/flagSpec/flags", "value": {}}]'
    resource = ("featureflagconfiguration", NAME, "-n", both.world.namespace)
    both.world.plane.kubectl("patch", *resource, "--type", "json", "-p", patch)
    both.see("")
    assert both.ours.source()["state"] == "current"


@pytest.mark.long
def test_a_flag_set_that_is_not_there_yet_is_waited_for(
    cluster: Plane, namespace: str, tmp_path: Path
) -> None:
    with (
        scene(cluster, namespace, tmp_path) as world,
        run_subscriber(tmp_path, namespace, world.service.port) as ours,
    ):
        ours.becomes("absent")
        world.put("one")
        ours.serves("one")
        assert ours.source()["state"] == "current"


class Tenant:
    """A service account, what it may read, and its token in a file."""

    def __init__(self, plane: Plane, namespace: str, folder: Path) -> None:
        self._space = Namespace(plane, namespace)
        self.file = folder / "token"
        *others, self._binding = reader(ACCOUNT)
        self._space.apply(*others)
        self.account = f"{namespace}:{ACCOUNT}"

    def grant(self) -> None:
        self._space.apply(self._binding)

    def revoke(self) -> None:
        self._space.delete("rolebinding", ACCOUNT)

    def rotate(self, **bound: str) -> None:
        """As the kubelet does."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(self._space.api.token(self._space.name, ACCOUNT, AUDIENCE, **bound))
        fresh.replace(self.file)

    def void(self) -> None:
        """A token that was good once."""
        self._space.apply(secret("anchor"))
        self.rotate(kind="Secret", name="anchor")
        self._space.delete("secret", "anchor")


@pytest.fixture
def tenant(cluster: Plane, namespace: str, tmp_path: Path) -> Tenant:
    return Tenant(cluster, namespace, tmp_path)


@pytest.fixture
def served(
    cluster: Plane, namespace: str, tenant: Tenant, tmp_path: Path
) -> Iterator[tuple[Subscribers, Following]]:
    """A tenant's evaluator that has its first flags, from a proxy which enforces."""
    tenant.grant()
    tenant.rotate()
    with scene(cluster, namespace, tmp_path, *ENFORCED) as world:
        world.put("one")
        port, token = world.service.port, str(tenant.file)
        with run_subscriber(tmp_path, namespace, port, bearerTokenFile=token) as ours:
            ours.serves("one")
            yield world, ours


@pytest.mark.long
def test_a_token_that_is_void_keeps_the_flags_and_a_fresh_one_is_read_from_its_file(
    served: tuple[Subscribers, Following], tenant: Tenant
) -> None:
    world, ours = served
    tenant.void()
    world.reconnect()
    ours.becomes("unauthenticated")
    assert ours.value == "one"
    world.put("two")
    tenant.rotate()
    ours.serves("two")
    assert tenant.file.read_text() not in world.proxy.log_text()


@pytest.mark.slow
def test_a_right_that_is_withdrawn_keeps_the_flags_and_given_again_brings_the_newest(
    served: tuple[Subscribers, Following], tenant: Tenant
) -> None:
    world, ours = served
    tenant.revoke()
    # A proxy keeps an answer for a moment: another one asks anew.
    world.proxy.end(signal.SIGKILL)
    world.start()
    ours.becomes("forbidden")
    assert ours.value == "one"
    world.put("two")
    tenant.grant()
    ours.serves("two")
    assert ours.source()["state"] == "current"


def test_a_client_without_a_token_is_unauthenticated(cluster: Plane, namespace: str, tmp_path: Path) -> None:
    with (
        scene(cluster, namespace, tmp_path, *ENFORCED) as world,
        run_subscriber(tmp_path, namespace, world.service.port) as ours,
    ):
        ours.becomes("unauthenticated")


@pytest.mark.slow
def test_an_authority_that_is_replaced_is_read_again(cluster: Plane, namespace: str, tmp_path: Path) -> None:
    authority, certificate, key = (tmp_path / name for name in ("ca.crt", "tls.crt", "tls.key"))

    def issue(trusted: trustme.CA) -> str:
        issued = trusted.issue_cert("localhost", "127.0.0.1")
        key.write_bytes(issued.private_key_pem.bytes())
        certificate.write_bytes(issued.cert_chain_pems[0].bytes())
        return certificate.read_text().strip()

    first, second = trustme.CA(), trustme.CA()
    first.cert_pem.write_to_path(authority)
    issue(first)
    files = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with scene(cluster, namespace, tmp_path, *files) as world:
        world.put("one")
        port, trust = world.service.port, {"tls": True, "certPath": str(authority)}
        with run_subscriber(tmp_path, namespace, port, **trust) as ours:
            ours.serves("one")
            fresh = issue(second)
            address = ("127.0.0.1", world.proxy.sync)
            within(lambda: ssl.get_server_certificate(address).strip() == fresh)
            world.put("two")
            ours.serves("two")
            world.reconnect()
            ours.becomes("down")
            second.cert_pem.write_to_path(authority)
            world.put("three")
            ours.serves("three")
