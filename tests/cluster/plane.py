"""A real etcd, kube-apiserver and kube-controller-manager on loopback, started in seconds and stopped with
the run.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import secrets
import signal
import socket
import ssl
import subprocess
import time
from typing import IO, TYPE_CHECKING, Any, Final, Self

import trustme
import urllib3
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.programs import DIES_WITH_US

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READY_SECONDS: Final = 60.0
ISSUER: Final = "https://kubernetes.default.svc"
_CONTROLLERS: Final = (
    "deployment-controller,replicaset-controller,statefulset-controller,daemonset-controller,garbage-collector-controller,"
    "namespace-controller,job-controller,serviceaccount-controller,disruption-controller"
)


class Plane:
    """One control plane in one folder. `kubeconfig` is its administrator's."""

    def __init__(self, assets: Path, folder: Path, issuer: str = ISSUER, *arguments: str) -> None:
        """`issuer`: of the tokens of its service accounts; `arguments`: more of the API server."""
        self.issuer = issuer
        self._arguments = arguments
        self.assets = assets
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.token = secrets.token_hex(16)
        self._programs: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, list[str]] = {}
        self._ports = free_ports(4)
        self._etcd = ""
        self.url = f"https://127.0.0.1:{self._ports[2]}"

    @classmethod
    def at(cls, assets: Path, folder: Path) -> Self:
        """The plane that another process started in `folder`."""
        plane = cls(assets, folder)
        known = json.loads(plane.kubeconfig.read_text())
        plane.url = known["clusters"][0]["cluster"]["server"]
        plane.token = known["users"][0]["user"]["token"]
        return plane

    @property
    def port(self) -> int:
        """The API server's own."""
        return int(self.url.rpartition(":")[2])

    @property
    def authority(self) -> Path:
        """The certificate that the API server is known by: it signed its own."""
        return self.folder / "certificates/apiserver.crt"

    @functools.cached_property
    def trust(self) -> ssl.SSLContext:
        """Believes the API server, which made its own certificate: that is no authority's."""
        context = ssl.create_default_context(cafile=str(self.authority))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    @functools.cached_property
    def connections(self) -> urllib3.PoolManager:
        """To the API server, kept from one request to the next."""
        return urllib3.PoolManager(ssl_context=self.trust, maxsize=8)

    def compact(self) -> None:
        """Have etcd forget all earlier versions, as the API server has it do every five minutes."""
        whole = {"key": "AA==", "range_end": "AA==", "count_only": True}
        found = urllib3.request("POST", f"{self._etcd}/v3/kv/range", json=whole).json()
        revision = {"revision": found["header"]["revision"], "physical": True}
        answer = urllib3.request("POST", f"{self._etcd}/v3/kv/compaction", json=revision)
        assert answer.status == 200, answer.data

    def start(self) -> None:
        """Start everything and wait until the API server is ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_credentials()
        client, peer, secure, manager = self._ports
        etcd = self._etcd = f"http://127.0.0.1:{client}"
        members = f"http://127.0.0.1:{peer}"
        self._commands = {
            "etcd": [
                "--data-dir", str(self.folder / "etcd"), "--listen-client-urls", etcd,
                "--advertise-client-urls", etcd, "--listen-peer-urls", members,
                "--initial-advertise-peer-urls", members, "--initial-cluster", f"default={members}",
                "--unsafe-no-fsync", "--log-level", "error",
            ],
            "kube-apiserver": [
                "--etcd-servers", etcd, "--secure-port", str(secure), "--bind-address", "127.0.0.1",
                "--advertise-address", "127.0.0.1", "--cert-dir", str(self.authority.parent),
                "--service-account-issuer", self.issuer, *self._arguments,
                "--service-account-key-file", str(self.folder / "accounts.key"),
                "--service-account-signing-key-file", str(self.folder / "accounts.key"),
                "--token-auth-file", str(self.folder / "tokens.csv"), "--authorization-mode", "RBAC",
                "--service-cluster-ip-range", "10.0.0.0/24", "--allow-privileged",
                "--endpoint-reconciler-type", "none",
                # As OpenShift has it: who changes an object's owners needs the right to delete it.
                "--enable-admission-plugins", "OwnerReferencesPermissionEnforcement",
                "--admission-control-config-file", str(self.folder / "admission.yaml"),
            ],
            "kube-controller-manager": [
                "--kubeconfig", str(self.kubeconfig), "--bind-address", "127.0.0.1",
                "--secure-port", str(manager), "--cert-dir", str(self.folder / "manager"),
                "--leader-elect=false", "--use-service-account-credentials=false",
                f"--controllers={_CONTROLLERS}", "--concurrent-gc-syncs", "4", "--kube-api-qps", "200",
                "--kube-api-burst", "400",
            ],
        }  # fmt: skip
        for name in self._commands:
            self.run(name)
            if name == "kube-apiserver":
                self.wait_ready()
                self._write_config(self.kubeconfig, self.token, self.url)

    def run(self, name: str) -> None:
        """Start one program, again if it was ended."""
        log = (self.folder / f"{name}.log").open("ab")
        command = [str(self.assets / name), *self._commands[name]]
        with log:
            self._programs[name] = start(command, log)

    def send(self, name: str, number: signal.Signals) -> None:
        """A signal to one program, which is there afterwards: SIGSTOP, SIGCONT."""
        self._programs[name].send_signal(number)

    def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End one program and wait until it is gone."""
        program = self._programs.pop(name)
        program.send_signal(number)
        program.wait(20)

    def stop(self) -> None:
        """End everything, in the order in which each needs the other; nothing is worth saving."""
        for name in reversed(tuple(self._programs)):
            self.end(name, signal.SIGKILL)

    def wait_ready(self) -> None:
        """Wait for the API server's /readyz. Raises RuntimeError, with the log's end, when it
        takes too long.
        """
        until = time.monotonic() + READY_SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(OSError, ValueError):
                if self._readyz():
                    return
            time.sleep(0.1)
        tail = (self.folder / "kube-apiserver.log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"the API server is not ready: {tail}")

    def _readyz(self) -> bool:
        command = ["curl", "-sf", "--max-time", "2", "--cacert", str(self.authority)]
        authorization = f"Authorization: Bearer {self.token}"
        url = f"{self.url}/readyz"
        done = subprocess.run([*command, "-H", authorization, url], capture_output=True, check=False)
        return done.stdout == b"ok"

    def kubectl(self, *arguments: str, given: str | None = None, check: bool = True) -> str:
        """What kubectl prints as the administrator; `given` is its standard input."""
        command = [str(self.assets / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr or done.stdout}")
        return done.stdout if check else done.stdout + done.stderr

    def config_for(self, token: str, name: str, via: str | None = None) -> Path:
        """A kubeconfig for the bearer of `token`, which finds the API server at the URL `via` if not at its
        own.
        """
        path = self.folder / f"{name}.kubeconfig"
        self._write_config(path, token, via or self.url)
        return path

    def _write_config(self, path: Path, token: str, url: str) -> None:
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(self._config(token, url)))
        fresh.chmod(0o600)
        fresh.replace(path)

    def _config(self, token: str, url: str) -> dict[str, Any]:
        authority = base64.b64encode(self.authority.read_bytes()).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "plane", "cluster": {"server": url, "certificate-authority-data": authority}}
            ],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "plane", "context": {"cluster": "plane", "user": "user"}}],
            "current-context": "plane",
        }  # fmt: skip

    def _write_credentials(self) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        accounts = self.folder / "accounts.key"
        accounts.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f'{self.token},admin,admin,"system:masters"\n')
        for path in (accounts, tokens):
            path.chmod(0o600)
        self._write_caller()

    @property
    def callers(self) -> Path:
        """The authority of the certificate that the API server shows to webhooks."""
        return self.folder / "callers.crt"

    def _write_caller(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.callers)
        pair = self.folder / "caller.pem"
        authority.issue_cert("kube-apiserver").private_key_and_cert_chain_pem.write_to_path(pair)
        pair.chmod(0o600)
        user = {"client-certificate": str(pair), "client-key": str(pair)}
        config = self.folder / "caller.kubeconfig"
        users = [{"name": "*", "user": user}]
        config.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "users": users}))
        group = "apiserver.config.k8s.io/v1"
        shown = {"apiVersion": group, "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": str(config)}
        names = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
        plugins = [{"name": name, "configuration": shown} for name in names]
        made = {"apiVersion": group, "kind": "AdmissionConfiguration", "plugins": plugins}
        (self.folder / "admission.yaml").write_text(json.dumps(made))


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at the moment."""
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in taken]


def start(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a program that is killed when we are."""
    return subprocess.Popen([*DIES_WITH_US, *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def run_plane(assets: Path, folder: Path, issuer: str = ISSUER, *arguments: str) -> Iterator[Plane]:
    """A control plane for as long as the block lasts."""
    plane = Plane(assets, folder, issuer, *arguments)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
