"""FlagSources on a real API server: credentials from Secrets, when a source is looked at, and what becomes of
its artifact.
"""

from __future__ import annotations

import hashlib
import shutil
import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from tests.cluster.patience import within
from tests.git_http import git_server, http_proxy
from tests.git_ssh import ssh_host
from tests.repositories import Repository
from tests.s3 import LOGIN as LOGIN_S3
from tests.s3 import manifest as bucket_manifest
from tests.s3 import s3
from tests.signing import ssh_pair
from tests.worlds.flags import flags
from tests.worlds.objects import condition, flag_set, flag_source, manifest, secret

if TYPE_CHECKING:
    from email.message import Message
    from pathlib import Path

    from tests.cluster.objects import Namespace
    from tests.cluster.plane import Plane
    from tests.cluster.plugin import ControllerPorts
    from tests.cluster.spines import Spine

LOGIN = {"username": "ada", "password": "correct-horse"}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    found = Repository(tmp_path / "repository")
    found.commit("first", flags__json=flags(banner="on"))
    return found


def protected_source(url: str) -> dict[str, Any]:
    """A FlagSource that reads with the Secret `git`."""
    return flag_source(f"{url}/repository/.git", git={"secretRef": {"name": "git"}})


def test_a_token_and_a_private_ca_in_a_secret_open_a_repository(
    space: Namespace, repository: Repository, tmp_path: Path
) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    trusted = authority.cert_pem.bytes().decode()
    with git_server(tmp_path, bearer="t0ken", tls=tls) as server:
        space.apply(secret("git", bearerToken="t0ken", ca__crt=trusted), protected_source(server.url))
        space.wait_ready("flagsource")


def test_a_commit_in_an_included_source_reaches_the_including_one_at_once(
    space: Namespace, repository: Repository, tmp_path: Path
) -> None:
    shared = Repository(tmp_path / "shared")
    shared.commit("first", shared__json=flags(shared="on"))
    with git_server(tmp_path) as server:
        own = flag_source(f"{server.url}/repository/.git", include=[{"repository": {"name": "shared"}}])
        space.apply(own)
        space.wait_reason("flagsource", "IncludeUnavailable")
        space.apply(flag_source(f"{server.url}/shared/.git", name="shared"))
        before = space.wait_ready("flagsource")["status"]["artifact"]
        second = shared.commit("second", shared__json=flags(shared="off"))
        space.poke("flagsource", "shared")
        found = space.wait(
            "flagsource",
            lambda found: found["status"]["includedArtifacts"][0]["revision"] == f"main@sha1:{second}",
        )
    assert found["status"]["artifact"]["revision"] == before["revision"]
    assert found["status"]["artifact"]["digest"] != before["digest"]


def test_a_trusted_key_that_is_taken_away_is_noticed_at_once_and_what_was_accepted_stays(
    space: Namespace, repository: Repository, tmp_path: Path
) -> None:
    ada, eve = ssh_pair(tmp_path), ssh_pair(tmp_path, name="eve@example.com")
    ada.use(repository)
    repository.git("commit", "-q", "--amend", "-S", "-m", "signed")
    with git_server(tmp_path) as server:
        source = flag_source(f"{server.url}/repository/.git", interval="1h")
        source["spec"]["verify"] = {"mode": "EveryCommit", "secretRef": {"name": "signers"}}
        space.apply(secret("signers", ada__sshpub=ada.public), source)
        found = space.wait_ready("flagsource")
        assert f"(SSH {ada.fingerprint})" in condition(found, "SourceVerified")["message"]
        space.apply(secret("signers", ada__sshpub=eve.public))
        refused = space.wait_reason("flagsource", "InvalidCommitSignature")
        assert condition(refused, "SourceVerified")["status"] == "False"
        assert refused["status"]["artifact"] == found["status"]["artifact"]
        space.apply(secret("signers", ada__sshpub=ada.public))
        space.wait_ready("flagsource")


def test_a_key_in_a_secret_opens_a_repository_over_ssh(
    space: Namespace, repository: Repository, tmp_path: Path
) -> None:
    (tmp_path / "keys").mkdir()
    with ssh_host(tmp_path / "keys") as host:
        content = {"identity": host.key(), "known_hosts": host.known_hosts()}
        source = flag_source(host.url(repository.path), git={"secretRef": {"name": "git"}})
        space.apply(secret("git", **content), source)
        space.wait_ready("flagsource")
        assert host.users
        space.apply(secret("git", **{**content, "known_hosts": host.known_hosts("stranger")}))
        found = space.wait_reason("flagsource", "HostKeyRefused")
    assert "Host key verification failed" in condition(found, "Ready")["message"]
    assert host.key() not in str(found)


def test_a_certificate_and_a_proxy_in_secrets_open_a_repository(
    space: Namespace, repository: Repository, tmp_path: Path
) -> None:
    authority, strangers = trustme.CA(), trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    strangers.configure_trust(tls)
    tls.verify_mode = ssl.CERT_REQUIRED
    ours = strangers.issue_cert("flagstaff@example.com")
    content = {
        "ca__crt": authority.cert_pem.bytes().decode(),
        "tls__crt": ours.cert_chain_pems[0].bytes().decode(),
        "tls__key": ours.private_key_pem.bytes().decode(),
    }
    with http_proxy("me:word") as proxy, git_server(tmp_path, tls=tls) as server:
        passing = secret("proxy", address=proxy.address, username="me", password="word")
        source = protected_source(server.url)
        source["spec"]["git"]["proxySecretRef"] = {"name": "proxy"}
        space.apply(secret("git", **content), passing, source)
        space.wait_ready("flagsource")
        assert proxy.targets


def test_a_bucket_becomes_flags_and_a_changed_object_does_too(space: Namespace, tmp_path: Path) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    trusted = secret("authority", ca__crt=authority.cert_pem.bytes().decode())
    with s3(tmp_path, tls) as store:
        store.put(flags___checkout__json=flags(banner="on"), notes__md="of no use", __sourceignore="*.md")
        bucket = bucket_manifest(store, certSecretRef={"name": "authority"})
        source = manifest("FlagSource", "flags", {"interval": "1h", "bucket": bucket})
        space.apply(trusted, secret("bucket", **{**LOGIN_S3, "secretkey": "wrong"}), source)
        refused = space.wait_reason("flagsource", "AuthenticationFailed")
        assert "SignatureDoesNotMatch" in condition(refused, "Ready")["message"]
        space.apply(secret("bucket", **LOGIN_S3), flag_set(paths=["flags"]))
        before = space.wait_ready("flagsource")["status"]["artifact"]
        assert before["revision"].startswith("sha256:")
        space.wait_ready("flagset")
        downloads = store.downloads
        space.poke_and_wait("flagsource")
        assert store.downloads == downloads
        store.put(flags___checkout__json=flags(banner="off"))
        changed = space.poke_and_wait("flagsource")
        assert changed["status"]["artifact"]["revision"] != before["revision"]
        within(lambda: space.served_variants() == {"banner": "off"})
    assert not any(word in str(changed) + str(space.events()) for word in (LOGIN_S3["secretkey"], "wrong"))


def test_a_secret_that_comes_changes_or_is_wrong_is_noticed_at_once(
    space: Namespace, repository: Repository, tmp_path: Path
) -> None:
    # The interval is an hour: nothing but the Secret's own change wakes the source.
    with git_server(tmp_path, login="ada:correct-horse") as server:
        space.apply(protected_source(server.url))
        missing = space.wait_reason("flagsource", "AuthenticationFailed")
        assert "does not exist" in condition(missing, "Ready")["message"]
        space.apply(secret("git", username="ada", password="wrong"))
        space.wait("flagsource", lambda it: "does not exist" not in str(condition(it, "Ready")))
        space.apply(secret("git", **LOGIN))
        space.wait_ready("flagsource")
        space.apply(secret("git", username="ada", password="revoked"))
        space.wait_reason("flagsource", "AuthenticationFailed")
        found = space.get("flagsource")
    assert condition(found, "ArtifactInStorage")["status"] == "True"
    shown = str(found) + str(space.events())
    assert not any(word in shown for word in ("correct-horse", "revoked", "wrong"))


def test_a_request_is_looked_after_and_acknowledged(spine: Spine) -> None:
    commit = spine.repository.commit("a second")
    found = spine.poke_and_wait("flagsource")
    assert found["status"]["artifact"]["revision"] == f"main@sha1:{commit}"


def test_the_interval_alone_brings_a_commit(spine: Spine) -> None:
    spine.apply(flag_source(spine.url, interval="500ms"))
    commit = spine.repository.commit("a second", flags__json=flags(banner="off"))
    spine.wait_applied(commit)


@pytest.mark.parametrize("kind", ["flagsource", "flagset"])
def test_what_is_suspended_is_left_alone_until_it_is_resumed(spine: Spine, kind: str) -> None:
    spine.patch(kind, {"spec": {"suspend": True}})
    commit = spine.push("a second", flags__json=flags(banner="off"))
    if kind == "flagset":
        spine.wait("flagsource", lambda it: commit in it["status"]["artifact"]["revision"])
    spine.apply(flag_source(spine.url, name="other"))
    spine.wait_ready("flagsource", "other")
    assert spine.served_variants() == {"banner": "on"}
    spine.patch(kind, {"spec": {"suspend": False}})
    spine.wait_applied(commit)
    assert spine.served_variants() == {"banner": "off"}


def test_another_process_reads_the_artifact_by_its_digest(
    spine: Spine, controller_ports: ControllerPorts
) -> None:
    artifact = spine.wait_ready("flagsource")["status"]["artifact"]
    body, headers = download(controller_ports, artifact["path"])
    assert artifact["digest"] == f"sha256:{hashlib.sha256(body).hexdigest()}"
    assert headers["ETag"] == f'"{artifact["digest"]}"'
    assert len(body) == artifact["size"]
    assert artifact["url"].endswith(artifact["path"])


def test_a_lost_disk_is_reported_and_filled_again(
    spine: Spine, cluster: Plane, controller_ports: ControllerPorts
) -> None:
    artifact = spine.wait_ready("flagsource")["status"]["artifact"]
    stored = cluster.folder / "controller/data/artifacts/flagsource" / spine.name
    shutil.rmtree(stored)
    spine.server.redirect_to = "http://127.0.0.1:1"
    found = spine.poke_and_wait("flagsource")
    assert condition(found, "ArtifactInStorage")["status"] == "False"
    assert spine.served_variants() == {"banner": "on"}
    spine.server.redirect_to = ""
    spine.poke("flagsource")
    again = spine.wait_ready("flagsource")
    assert condition(again, "ArtifactInStorage")["status"] == "True"
    assert again["status"]["artifact"]["digest"] == artifact["digest"]
    assert download(controller_ports, artifact["path"])[0]


def test_artifacts_go_with_their_source(spine: Spine, cluster: Plane) -> None:
    stored = cluster.folder / "controller/data/artifacts/flagsource" / spine.name
    assert stored.is_dir()
    spine.delete("flagsource")
    spine.apply(flag_source(spine.url, name="other"))
    spine.wait_ready("flagsource", "other")
    within(lambda: not (stored / "flags").exists())


def download(ports: ControllerPorts, path: str, **headers: str) -> tuple[bytes, Message]:
    """An archive as another process gets it."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    request = urllib.request.Request(f"http://127.0.0.1:{ports.artifacts}/{path}", headers=named)
    with urllib.request.urlopen(request) as answer:
        return answer.read(), answer.headers
