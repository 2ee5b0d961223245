"""Objects and Secrets at their largest and worst hold up the event loop of a controller for nobody else."""

from __future__ import annotations

import base64
import itertools
import re
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from controller.app.reconcilers import STAGES
from tests.clients.attacks import peak_megabytes, resident_megabytes
from tests.cluster.patience import within
from tests.cluster.replica import Replica, run_replica
from tests.cluster.stubbed import Admission, Controller, Page, Proxy
from tests.git_http import git_server
from tests.hostile_crowds import INSTALLED, crowd, pairs
from tests.hostile_objects import CRDS, UNITS, hostile_objects
from tests.repositories import Repository
from tests.stub_api import KINDS, stub_api
from tests.worlds.flags import flags
from tests.worlds.objects import condition, flag_set, flag_source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.stub_api import StubApi

LOOPBACK: Final = ("--denied-source-hosts", "169.254.0.0/16", "--artifact-hosts", "127.0.0.1")
SECRET_KEYS: Final = (
    "username", "password", "bearerToken", "identity", "known_hosts", "ca.crt", "tls.crt", "tls.key", "token",
    "address", "headers", "proxy", "accesskey", "secretkey", "cosign.pub", "key.asc", "age.agekey",
    ".dockerconfigjson", "serviceaccount", "githubAppID", "githubAppPrivateKey", "allowed_signers",
)  # fmt: skip
REFERENCES: Final = ("secretRef", "certSecretRef", "proxySecretRef", "trustedRootSecretRef")
BYTES: Final = 900_000
"""Of a Secret, which may have a MiB."""
MOST_SECONDS: Final = 2.5
"""Ten times what is allowed: on a shared machine the process may stand still meanwhile. What takes more than
linear time takes longer.
"""

CROWD: Final = 12
"""Objects of each of two kinds that meet."""
MOST_MEGABYTES: Final = 256
"""Twice what is allowed, for each process."""


def hostile_tenant() -> Iterator[dict[str, Any]]:
    """Yield one object for each field of each kind, with another hostile value each time."""
    for file in sorted(CRDS.glob("*.yaml")):
        fields = itertools.groupby(hostile_objects(file.stem), lambda each: each.field)
        for number, (_, group) in enumerate(fields):
            # The stub cannot write what is nested deeply.
            values = [each for each in group if not each.value.startswith("deep")]
            body = values[number % len(values)].body
            name = f"hostile-{number}"
            yield {**body, "metadata": {"name": name, "namespace": "hostile", "generation": 1}}


def hostile_secrets() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield Secrets by name: each key holds a hostile text."""
    for number, unit in enumerate(UNITS):
        size = BYTES // len(SECRET_KEYS)
        text = (unit * (size // len(unit) + 1))[:size].encode()
        yield f"secret-{number}", dict.fromkeys(SECRET_KEYS, base64.b64encode(text).decode())
        key = SECRET_KEYS[number % len(SECRET_KEYS)]
        large = (unit * (BYTES // len(unit) + 1))[:BYTES].encode()
        yield f"large-{number}", {key: base64.b64encode(large).decode()}


def users_of(secret: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield kinds and specs that read the Secret in each of their ways."""
    named = {"name": secret}
    git = {"url": "https://127.0.0.1:1/x", **dict.fromkeys(REFERENCES[:3], named)}
    verify = {"mode": "HEAD", "secretRef": named}
    oci = {"url": "oci://127.0.0.1:1/x", **dict.fromkeys(REFERENCES[:3], named)}
    bucket = {"endpoint": "127.0.0.1:1", "bucketName": "b", **dict.fromkeys(REFERENCES[:3], named)}
    yield "FlagSource", {"interval": "1m", "git": {**git, "verify": verify}}
    yield (
        "FlagSource",
        {"interval": "1m", "oci": {**oci, "verify": {"provider": "cosign", "secretRef": named}}},
    )
    yield "FlagSource", {"interval": "1m", "bucket": bucket}
    yield "FlagProvider", {"type": "generic", **dict.fromkeys(REFERENCES[:3], named)}
    yield "FlagReceiver", {"type": "generic", "secretRef": named, "resources": []}
    substitute = [{"kind": "Secret", "name": secret}]
    reference = {"kind": "FlagSource", "name": "flags"}
    decryption = {"provider": "sops", "secretRef": named}
    yield "FlagSet", {"sourceRef": reference, "substituteFrom": substitute, "decryption": decryption}


def put(stub: StubApi, body: dict[str, Any]) -> None:
    meta = body["metadata"]
    meta.setdefault("namespace", "shop")
    meta.setdefault("generation", 1)
    stub.put(stub.path_of(body), body)


def blocking_places(log: str) -> list[str]:
    """The places in our code that held the event loop for too long, as the controller found them."""
    lines = re.findall(r"held for (\S+) s in (.+)", log)
    return [f"{seconds} s in {place}" for seconds, place in lines if float(seconds) > MOST_SECONDS]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_a_tenant_writes_never_holds_the_event_loop(tmp_path: Path) -> None:
    sound = Repository(tmp_path / "git" / "flags")
    sound.commit("first", flags__json=flags(hello="on"))
    with (
        git_server(tmp_path / "git") as server,
        stub_api(tmp_path / "stub") as stub,
        run_replica(Controller(tmp_path, stub, *LOOPBACK)) as controller,
    ):
        put(stub, flag_source(f"{server.url}/flags/.git"))
        put(stub, flag_set())
        path = "/apis/flagstaff.dev/v1beta1/namespaces/shop/flagsets/flags"
        ready = lambda: condition(stub.get(path), "Ready").get("status") == "True"  # noqa: E731
        within(ready, controller.log_text)
        for name, data in hostile_secrets():
            meta = {"name": name, "namespace": "hostile"}
            put(stub, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})
            for number, (kind, spec) in enumerate(users_of(name)):
                meta = {"name": f"{name}-{number}", "namespace": "hostile"}
                put(
                    stub,
                    {"apiVersion": "flagstaff.dev/v1beta1", "kind": kind, "metadata": meta, "spec": spec},
                )
        for body in hostile_tenant():
            put(stub, body)
        time.sleep(30.0)
        assert blocking_places(controller.log_text()) == []
        assert controller.end() == 0


def has_read(stub: StubApi, kind: str) -> bool:
    """Whether a process watches the objects of a kind in all namespaces."""
    type_ = KINDS[kind]
    return stub.count("WATCH", f"/apis/{type_.api_version}/{type_.plural}", 200) > 0


def is_reconciled(stub: StubApi, body: dict[str, Any]) -> bool:
    """Whether the status is of this generation."""
    status = stub.get(stub.path_of(body)).get("status", {})
    return bool(status.get("observedGeneration") == body["metadata"]["generation"])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_crowds_of_every_pair_of_kinds_leave_another_tenants_objects_reconciled(tmp_path: Path) -> None:
    with stub_api(tmp_path / "stub") as stub, run_replica(Controller(tmp_path, stub)) as controller:
        within(lambda: all(has_read(stub, kind) for kind in INSTALLED), controller.log_text)
        with (
            run_replica(Proxy(tmp_path, stub)) as proxy,
            run_replica(Admission(tmp_path, stub)) as admission,
            run_replica(Page(tmp_path, stub)) as page,
        ):
            attack_beside_a_tenant(stub, (controller, proxy, admission, page))


def attack_beside_a_tenant(stub: StubApi, processes: tuple[Replica, ...]) -> None:
    reconciled = {stage.type.kind for stage in STAGES}
    controller = processes[0]
    tenants = [body for kind in INSTALLED for body in crowd(kind, "shop", 1)]
    for body in tenants:
        put(stub, body)
    resident = [resident_megabytes(process.pid) for process in processes]
    for number, pair in enumerate(pairs()):
        for generation in (1, 2):
            for kind in pair:
                for body in crowd(kind, f"hostile-{number}", CROWD, generation):
                    put(stub, body)
    again = [body for kind in INSTALLED for body in crowd(kind, "shop", 1, generation=2)]
    for body in again:
        put(stub, body)
    waiting = [body for body in again if body["kind"] in reconciled]
    within(
        lambda: all(is_reconciled(stub, body) for body in waiting),
        lambda: str([body["kind"] for body in waiting if not is_reconciled(stub, body)]),
    )
    for body in again:
        assert stub.get(stub.path_of(body))["spec"] == body["spec"]
    assert "no longer leads" not in controller.log_text()
    for process, before in zip(processes, resident, strict=True):
        assert peak_megabytes(process.pid) - before < MOST_MEGABYTES, process.log.stem
