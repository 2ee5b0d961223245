"""FlagSets that write to a second cluster: with a kubeconfig, and with tokens of their own cluster."""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cluster.api import Api
from tests.cluster.assets import find
from tests.cluster.controllers import FLAGSTAFF
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.plane import ISSUER, run_plane
from tests.cluster.plugin import ROOT, install
from tests.cluster.relay import Relay
from tests.worlds.flags import flags
from tests.worlds.objects import condition, flag_set, secret

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.plane import Plane
    from tests.cluster.spines import Spine

pytestmark = [pytest.mark.timeout(300)]
ROLES: Final = ROOT / "deploy/components/multi-tenant/service-accounts.yaml"
CONTROLLER: Final = "--serviceaccount=flagstaff-system:flagstaff-controller"
AUTHENTICATION: Final = "apiserver.config.k8s.io/v1"

DISCOVERY: Final = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "discovery"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "system:service-account-issuer-discovery",
    },
    "subjects": [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:unauthenticated"}
    ],
}
"""Lets anybody ask the API server for the keys of its tokens."""


def trusting(folder: Path, hub: Plane) -> tuple[str, ...]:
    """Arguments of an API server that trusts tokens of the other cluster, as its issuer tells of itself."""
    issuer = {
        "url": ISSUER,
        "discoveryURL": f"{hub.url}/.well-known/openid-configuration",
        "audiences": ["eu"],
        "certificateAuthority": hub.authority.read_text(),
    }
    mappings = {"username": {"claim": "sub", "prefix": "hub:"}}
    made = {
        "apiVersion": AUTHENTICATION,
        "kind": "AuthenticationConfiguration",
        "jwt": [{"issuer": issuer, "claimMappings": mappings}],
    }
    file = folder / "authentication.json"
    file.write_text(json.dumps(made))
    return "--authentication-config", str(file)


@pytest.fixture(scope="module")
def other(cluster: Plane) -> Iterator[Plane]:
    """A second cluster, without a controller, with our kinds and the roles of tenants."""
    assets = find()
    assert assets is not None
    cluster.kubectl("apply", "--server-side", "-f", "-", given=json.dumps(DISCOVERY))
    with tempfile.TemporaryDirectory(prefix="flagstaff-eu-") as name:
        folder = Path(name)
        with run_plane(
            assets, folder / "plane", "https://eu.example.com", *trusting(folder, cluster)
        ) as plane:
            install(plane)
            plane.kubectl("apply", "--server-side", "-f", str(ROLES))
            yield plane


@dataclass(frozen=True, slots=True)
class Remote:
    """The namespace of a spine, in the second cluster."""

    spine: Spine
    there: Namespace

    def grant(self, user: str, role: str = "flagstaff-delivery") -> None:
        """Bind a role to a service account there."""
        account = f"--serviceaccount={self.there.name}:{user}"
        self.there.kubectl("create", "rolebinding", f"{role}-{user}", f"--clusterrole={role}", account)

    def kubeconfig(self, account: str, server: str = "", authority: bytes = b"") -> dict[str, Any]:
        """One for a service account there."""
        plane = self.there.plane
        token = Api(plane).token(self.there.name, account)
        trusted = base64.b64encode(authority or plane.authority.read_bytes()).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "a",
                    "cluster": {"server": server or plane.url, "certificate-authority-data": trusted},
                }
            ],
            "users": [{"name": "a", "user": {"token": token}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        }

    def write_secret(self, kubeconfig: dict[str, Any], name: str = "eu") -> None:
        self.spine.apply(secret(name, value=json.dumps(kubeconfig)))

    def send(self, **spec: Any) -> None:
        """Have the FlagSet write there."""
        self.spine.apply(flag_set(**({"kubeConfig": {"secretRef": {"name": "eu"}}} | spec)))

    def variants(self) -> dict[str, str]:
        return self.there.served_variants()

    def message(self) -> str:
        return str(condition(self.spine.get("flagset"), "Ready").get("message"))


@pytest.fixture
def remote(spine: Spine, other: Plane) -> Iterator[Remote]:
    """An account `flags` with its rights there, whose kubeconfig is in the Secret `eu`."""
    role = "flagstaff-remote-objects"
    spine.kubectl("create", "rolebinding", role, f"--clusterrole={role}", CONTROLLER)
    other.kubectl("create", "namespace", spine.name)
    made = Remote(spine, Namespace(other, spine.name))
    made.there.kubectl("create", "serviceaccount", "flags")
    made.grant("flags")
    made.write_secret(made.kubeconfig("flags"))
    yield made
    other.kubectl("delete", "namespace", spine.name, "--wait=false")


def test_flags_go_there_and_drift_is_mended_and_what_is_deleted_is_removed(remote: Remote) -> None:
    remote.send(interval="1s")
    within(lambda: remote.variants() == {"banner": "on"}, remote.message)
    spine = remote.spine
    spine.wait_gone("ffc")
    applied = spine.wait_ready("flagset")
    assert applied["status"]["remoteClusters"][0]["server"] == remote.there.plane.url
    written = remote.there.get("ffc")
    assert "ownerReferences" not in written["metadata"]
    flag = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
    remote.there.patch("ffc", {"spec": {"flagSpec": {"flags": {"banner": flag}}}})
    within(lambda: remote.variants() == {"banner": "on"}, remote.message)
    spine.push(flags__json=flags(banner="off"))
    within(lambda: remote.variants() == {"banner": "off"}, remote.message)
    spine.delete("flagset")
    spine.wait_gone("flagset")
    assert remote.there.get("ffc") == {}


def test_a_cluster_that_is_cut_keeps_what_it_has_and_holds_up_no_other(remote: Remote) -> None:
    relay = Relay(remote.there.plane.port)
    remote.write_secret(remote.kubeconfig("flags", f"https://127.0.0.1:{relay.port}"))
    remote.send(interval="1s")
    within(lambda: remote.variants() == {"banner": "on"}, remote.message)
    spine = remote.spine
    spine.wait_ready("flagset")
    relay.cut()
    spine.apply(flag_set(name="here"))
    commit = spine.push(flags__json=flags(banner="off"))
    failed = spine.wait_reason("flagset", "ApiServerUnavailable")
    assert f"cluster https://127.0.0.1:{relay.port}: 127.0.0.1: " in condition(failed, "Ready")["message"]
    spine.wait(
        "flagset", lambda found: found["status"].get("lastAppliedRevision", "").endswith(commit), "here"
    )
    assert remote.variants() == {"banner": "on"}
    relay.open = True
    within(lambda: remote.variants() == {"banner": "off"}, remote.message)


def test_another_address_of_the_same_cluster_changes_nothing_there(remote: Remote) -> None:
    relay = Relay(remote.there.plane.port)
    address = f"https://127.0.0.1:{relay.port}"
    remote.write_secret(remote.kubeconfig("flags", address))
    remote.send()
    within(lambda: remote.variants() == {"banner": "on"}, remote.message)
    written = remote.there.get("ffc")
    remote.write_secret(remote.kubeconfig("flags"), "direct")
    remote.send(kubeConfig={"secretRef": {"name": "direct"}})
    url = remote.there.plane.url
    remote.spine.wait("flagset", lambda found: [each["server"] for each in servers(found)] == [url])
    assert remote.there.get("ffc")["metadata"]["uid"] == written["metadata"]["uid"]


def servers(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The other clusters in the status of a FlagSet."""
    return list(found["status"].get("remoteClusters", ()))


def test_from_there_back_here(remote: Remote) -> None:
    remote.send()
    within(lambda: remote.variants() == {"banner": "on"}, remote.message)
    remote.spine.apply(flag_set())
    remote.spine.wait("ffc", bool)
    remote.there.wait_gone("ffc")
    assert "finalizers" not in remote.spine.wait_ready("flagset")["metadata"]


def test_a_certificate_of_another_authority_is_not_believed(remote: Remote) -> None:
    remote.write_secret(remote.kubeconfig("flags", authority=remote.spine.plane.authority.read_bytes()))
    remote.send()
    failed = remote.spine.wait_reason("flagset", "ApiServerUnavailable")
    assert "its certificate is not trusted" in condition(failed, "Ready")["message"]


def test_a_missing_right_is_granted_by_the_command_in_the_message(remote: Remote) -> None:
    remote.there.kubectl("delete", "rolebinding", "flagstaff-delivery-flags")
    remote.send()
    message = condition(remote.spine.wait_reason("flagset", "AccessDenied"), "Ready")["message"]
    assert message.startswith(f"cluster {remote.there.plane.url}: ")
    command = message.partition("; in that cluster: kubectl ")[2].split()
    remote.there.plane.kubectl(*command)
    remote.spine.poke("flagset")
    within(lambda: remote.variants() == {"banner": "on"}, remote.message)


def test_a_service_account_there_is_impersonated(remote: Remote) -> None:
    remote.there.kubectl("create", "serviceaccount", "hub")
    remote.grant("hub", "flagstaff-impersonation")
    remote.write_secret(remote.kubeconfig("hub"))
    remote.send()
    assert ":hub" in condition(remote.spine.wait_reason("flagset", "AccessDenied"), "Ready")["message"]
    remote.send(serviceAccountName="flags")
    within(lambda: remote.variants() == {"banner": "on"}, remote.message)


def test_a_token_of_this_cluster_is_shown_where_it_is_trusted(remote: Remote) -> None:
    spine = remote.spine
    spine.kubectl("create", "serviceaccount", "pusher")
    plane = remote.there.plane
    data = {
        "provider": "generic", "address": plane.url, "ca.crt": plane.authority.read_text(),
        "audiences": "eu", "serviceAccountName": "pusher",
    }  # fmt: skip
    meta = {"name": "eu"}
    spine.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
    remote.send(kubeConfig={"configMapRef": {"name": "eu"}})
    for place in (spine, remote.there):
        message = condition(spine.wait_reason("flagset", "AccessDenied"), "Ready")["message"]
        place.plane.kubectl(*message.rpartition("kubectl ")[2].split())
        spine.poke_and_wait("flagset")
    within(lambda: remote.variants() == {"banner": "on"}, remote.message)


def test_a_set_without_the_right_to_a_finalizer_writes_nothing(remote: Remote) -> None:
    remote.spine.kubectl("delete", "rolebinding", "flagstaff-remote-objects")
    remote.send()
    message = condition(remote.spine.wait_reason("flagset", "AccessDenied"), "Ready")["message"]
    assert remote.there.get("ffc") == {}
    remote.spine.plane.kubectl(*message.rpartition("kubectl ")[2].split())
    remote.spine.poke("flagset")
    within(lambda: remote.variants() == {"banner": "on"}, remote.message)


def test_verbs_tell_of_a_set_there(remote: Remote) -> None:
    remote.send()
    applied = remote.spine.wait_ready("flagset")["status"]["lastAppliedRevision"]
    where = ("-n", remote.spine.name, "--kubeconfig", str(remote.spine.plane.kubeconfig))
    waited = verb("wait", "set/flags", "--revision", applied, "--allow-none", "--timeout", "60s", *where)
    assert waited.returncode == 0, waited.stdout + waited.stderr
    assert "flags" in verb("get", "sets", *where).stdout
    compared = verb(
        "diff", "--against-cluster", "flags", "--source", str(remote.spine.repository.path), *where
    )
    assert (compared.returncode, "writes to another cluster" in compared.stderr) == (2, True)


def verb(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([FLAGSTAFF, *words], capture_output=True, text=True, check=False, timeout=120)


def test_rollouts_and_overrides_here_say_where_they_belong(remote: Remote) -> None:
    remote.send()
    within(lambda: remote.variants() == {"banner": "on"}, remote.message)
    remote.spine.wait_gone("ffc")
    reference = {"flagSetRef": {"name": "flags"}}
    made = {"apiVersion": "flagstaff.dev/v1beta1", "metadata": {"name": "flags"}}
    steps = {"flags": ["banner"], "steps": [{"share": 10, "minDuration": "1h"}]}
    off = {"flag": "banner", "variant": "off", "reason": "a test", "expiresAt": "2999-01-01T00:00:00Z"}
    remote.spine.apply({**made, "kind": "FlagRollout", "spec": reference | steps})
    remote.spine.apply({**made, "kind": "FlagOverride", "spec": reference | off})
    for kind in ("FlagRollout", "FlagOverride"):
        found = remote.spine.wait_reason(kind, "UnknownFlagSet")
        assert condition(found, "Stalled")["message"] == (
            f"FlagSet flags writes to another cluster (spec.kubeConfig); make the {kind} in that cluster"
        )
