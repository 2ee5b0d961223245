"""FlagSources of artifacts in a real registry, on a real API server."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.fleets import flagstaff, followed_source
from tests.cluster.patience import within
from tests.cluster.pods import pods
from tests.registry.artifacts import ORAS_FILE, Pusher, flux, oras_files
from tests.registry.fixtures import Shelf, registry, shelf
from tests.registry.htpasswd import LOGIN, guarded_registry
from tests.registry.signing import attachment_of, referrers
from tests.sigstore.instance import ISSUER, SUBJECT, instance
from tests.worlds.flags import flags
from tests.worlds.objects import condition, flag_set, manifest, secret

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.objects import Namespace
    from tests.cluster.plugin import ControllerPorts
    from tests.cluster.proxies import ProxyProcess

__all__ = ["registry", "shelf"]

REVISION = "main@sha1:46ead10f53b751a66b035e6b4c6ff198ee57e522"


def artifact_source(url: str, **oci: Any) -> dict[str, Any]:
    return manifest("FlagSource", "flags", {"interval": "1h", "oci": {"url": url, "insecure": True, **oci}})


def served_flags(space: Namespace) -> dict[str, Any]:
    found = space.get("featureflagconfiguration")["spec"]["flagSpec"]["flags"]
    return {key: flag["defaultVariant"] for key, flag in found.items()}


def test_a_push_to_a_registry_is_served_and_so_is_the_next(space: Namespace, shelf: Shelf) -> None:
    made = flux({"flags.json": flags(banner="on")}, revision=REVISION, authors="Ada <ada@example.com>")
    digest = shelf.pusher.push(shelf.repository, "latest", made)
    space.apply(artifact_source(shelf.url), flag_set())
    space.wait_ready("flagset")
    artifact = space.get("flagsource")["status"]["artifact"]
    assert artifact["revision"] == f"latest@{digest}"
    assert artifact["metadata"]["flagstaff.dev/author"] == "Ada <ada@example.com>"
    assert served_flags(space) == {"banner": "on"}
    shelf.pusher.push(shelf.repository, "latest", flux({"flags.json": flags(banner="off")}))
    space.poke("flagsource")
    within(lambda: served_flags(space) == {"banner": "off"})


def test_another_layer_of_the_same_revision_is_another_artifact(space: Namespace, shelf: Shelf) -> None:
    shelf.pusher.push(shelf.repository, "latest", oras_files({"flags.json": flags(banner="on")}))
    space.apply(artifact_source(shelf.url))
    refused = space.wait_reason("flagsource", "ArchiveRefused")
    assert "layerSelector" in condition(refused, "Ready")["message"]
    space.apply(artifact_source(shelf.url, layerSelector={"operation": "copy", "mediaType": ORAS_FILE}))
    found = space.wait_ready("flagsource")
    assert found["status"]["observedLayerSelector"] == {"operation": "copy", "mediaType": ORAS_FILE}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[int]:
    with guarded_registry(tmp_path) as port:
        yield port


def test_a_docker_config_that_comes_or_is_wrong_is_noticed_at_once(space: Namespace, guarded: int) -> None:
    host = f"127.0.0.1:{guarded}"
    pusher = Pusher(f"http://{host}", {"Authorization": LOGIN.basic})
    pusher.push("team/flags", "latest", flux({"flags.json": flags(banner="on")}))

    def docker(password: str) -> dict[str, Any]:
        entry = {"username": LOGIN.username, "password": password}
        return secret("login", __dockerconfigjson=json.dumps({"auths": {host: entry}}))

    space.apply(artifact_source(f"oci://{host}/team/flags", secretRef={"name": "login"}))
    space.wait_reason("flagsource", "AuthenticationFailed")
    space.apply(docker(LOGIN.password))
    space.wait_ready("flagsource")
    space.apply(docker("wrong-word"))
    space.wait_reason("flagsource", "AuthenticationFailed")
    shown = str(space.get("flagsource")) + str(space.events())
    assert not any(word in shown for word in (LOGIN.password, "wrong-word"))


def test_a_root_that_changes_is_noticed_at_once_and_what_was_accepted_stays(
    space: Namespace, shelf: Shelf
) -> None:
    digest = shelf.pusher.push(shelf.repository, "latest", flux({"flags.json": flags(banner="on")}))
    source = artifact_source(shelf.url)
    source["spec"]["verify"] = {
        "matchOIDCIdentity": [{"issuer": f"^{ISSUER}$", "subject": "^https://git.example/shop/flags/"}],
        "trustedRootSecretRef": {"name": "root"},
    }
    with instance() as own, instance() as other:
        made = attachment_of(own.sign(digest))
        shelf.pusher.push(shelf.repository, "bundle", made)
        shelf.pusher.push_index(shelf.repository, digest.replace(":", "-"), referrers(made))
        space.apply(secret("root", trusted_root__json=own.root.decode()), source, flag_set())
        found = space.wait_ready("flagsource")
        signer = f"{SUBJECT} (keyless {ISSUER})"
        assert signer in condition(found, "SourceVerified")["message"]
        assert space.wait_ready("flagset")["status"]["history"][0]["verifiedBy"] == signer
        within(lambda: any(f"signed by {signer}" in str(each) for each in space.events()))
        space.apply(secret("root", trusted_root__json=other.root.decode()))
        refused = space.wait_reason("flagsource", "InvalidArtifactSignature")
        assert condition(refused, "SourceVerified")["status"] == "False"
        assert refused["status"]["artifact"] == found["status"]["artifact"]
        space.apply(secret("root", trusted_root__json=own.root.decode()))
        space.wait_ready("flagsource")


def test_a_source_has_exactly_one_provider(space: Namespace) -> None:
    both = artifact_source("oci://registry.example.com/team/flags")
    both["spec"]["git"] = {"url": "https://git.example.com/flags.git"}
    neither = manifest("FlagSource", "flags", {"interval": "1h"})
    for each in (both, neither):
        assert "set exactly one of" in space.kubectl("apply", "-f", "-", given=json.dumps(each), check=False)


def test_a_digest_is_promoted_once_the_stage_before_serves_it(
    space: Namespace, shelf: Shelf, delivering: ProxyProcess, tmp_path: Path
) -> None:
    made = flux({"flags.json": flags(banner="on")})
    digest = shelf.pusher.push(shelf.repository, "staging", made)
    space.apply(artifact_source(shelf.url, ref={"tag": "staging"}), flag_set())
    space.wait_ready("flagset")
    promotion = (
        "promote", f"{shelf.url}@{digest}", "--to", "eu", "--unsigned", "--insecure",
        "--after", "flagset/flags", "-n", space.name, "--timeout",
    )  # fmt: skip
    code, text = flagstaff(space.plane, *promotion, "2s")
    assert (code, "the tag eu was not moved" in text) == (1, True), text
    source = followed_source(delivering.target, space.name)
    with pods(space.plane, space.name, source, tmp_path / "pods", "web-1"):
        code, text = flagstaff(space.plane, *promotion, "60s")
    assert (code, f"{shelf.url}:eu@{digest}" in text) == (0, True), text
    assert shelf.pusher.manifest(shelf.repository, "eu") == made.manifest


def test_a_registrys_webhook_brings_a_push_at_once(
    space: Namespace, shelf: Shelf, controller_ports: ControllerPorts
) -> None:
    shelf.pusher.push(shelf.repository, "latest", flux({"flags.json": flags(banner="on")}))
    wanted = {"type": "harbor", "secretRef": {"name": "hook"}, "resources": [{"name": "*"}]}
    token = "a-token-of-forty-random-characters"
    space.apply(artifact_source(shelf.url), flag_set(), secret("hook", token=token))
    space.apply(manifest("FlagReceiver", "push", wanted))
    space.wait_ready("flagset")
    path = space.wait_ready("flagreceiver", "push")["status"]["webhookPath"]
    digest = shelf.pusher.push(shelf.repository, "latest", flux({"flags.json": flags(banner="off")}))
    place = f"{shelf.url.removeprefix('oci://')}:latest"
    resources = [{"resource_url": place, "tag": "latest", "digest": digest}]
    body = json.dumps({"type": "PUSH_ARTIFACT", "event_data": {"resources": resources}})
    url = f"http://127.0.0.1:{controller_ports.receiver}{path}"
    command = ["curl", "-sS", "--fail-with-body", "-H", f"Authorization: {token}", "-d", body, url]
    subprocess.run(command, check=True, capture_output=True)
    within(lambda: served_flags(space) == {"banner": "off"})
