"""What proves us to a server and it to us, by git's own program against real servers; and that nobody else
sees it.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
import trustme

from controller.api.addresses import Transport, parse_location
from controller.runtime.secret_texts import SecretTexts, Tls
from controller.runtime.setbacks import Failed
from controller.sources.deadline import Deadline
from controller.sources.git_credentials import Credentials, credentials_from, with_proxy
from controller.sources.git_program import GitProgram
from tests.git_http import command_lines, git_server, http_proxy
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "s3cr3t+/t0ken"  # noqa: S105 - it guards nothing
FORMS = (SECRET, quote(SECRET, safe=""), base64.b64encode(f"me:{SECRET}".encode()).decode())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    Repository(tmp_path / "repository").commit("first")
    return tmp_path


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_side(authority: trustme.CA, clients: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if clients is not None:
        clients.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def pem(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


def client(clients: trustme.CA, authority: trustme.CA | None = None) -> Tls:
    issued = clients.issue_cert("someone@example.com")
    chain = "".join(blob.bytes().decode() for blob in issued.cert_chain_pems)
    return Tls("" if authority is None else pem(authority), chain, issued.private_key_pem.bytes().decode())


def list_references(url: str, credentials: Credentials | None) -> str:
    location = parse_location(f"{url}/repository/.git")
    program = GitProgram(location, credentials, Deadline(30.0, location.shown))
    return asyncio.run(program.list_references())


def refusal_of(url: str, credentials: Credentials | None) -> Failed:
    with pytest.raises(Failed) as setback:
        list_references(url, credentials)
    return setback.value


def test_a_bearer_token_lets_in_and_is_in_no_argument(root: Path) -> None:
    with git_server(root, bearer=SECRET) as server:
        assert "refs/heads/main" in list_references(server.url, Credentials(bearer=SECRET))
        assert any("ls-remote" in line for line in server.command_lines)
        assert not [line for line in server.command_lines if any(each in line for each in FORMS)]


def test_a_wrong_bearer_token_is_refused_and_not_repeated(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with git_server(root, bearer=SECRET) as server:
        setback = refusal_of(server.url, Credentials(bearer="wr0ng-one"))
    assert setback.reason == "AuthenticationFailed"
    assert "wr0ng-one" not in setback.message + caplog.text


def test_a_bearer_token_does_not_follow_a_redirect(root: Path) -> None:
    with git_server(root) as elsewhere, git_server(root) as first:
        first.redirect_to = elsewhere.url
        refusal_of(first.url, Credentials(bearer=SECRET))
        assert not elsewhere.paths


def test_a_private_authority_is_trusted_where_it_is_given(root: Path, authority: trustme.CA) -> None:
    with git_server(root, tls=server_side(authority)) as server:
        assert "refs/heads/main" in list_references(server.url, Credentials(tls=Tls(pem(authority))))


@pytest.mark.parametrize("given", [False, True], ids=["the system's", "another"])
def test_a_server_of_an_unknown_authority_is_refused(root: Path, authority: trustme.CA, given: bool) -> None:
    credentials = Credentials(tls=Tls(pem(trustme.CA()))) if given else None
    with git_server(root, tls=server_side(authority)) as server:
        assert refusal_of(server.url, credentials).reason == "CertificateRefused"
        assert not server.paths


def test_a_client_is_accepted_by_its_certificate(root: Path, authority: trustme.CA) -> None:
    clients = trustme.CA()
    credentials = Credentials(tls=client(clients, authority))
    with git_server(root, tls=server_side(authority, clients)) as server:
        assert "refs/heads/main" in list_references(server.url, credentials)


@pytest.mark.parametrize("stranger", [False, True], ids=["none", "another authority's"])
def test_a_client_without_the_right_certificate_is_refused(
    root: Path, authority: trustme.CA, stranger: bool
) -> None:
    credentials = Credentials(tls=client(trustme.CA(), authority) if stranger else Tls(pem(authority)))
    with git_server(root, tls=server_side(authority, trustme.CA())) as server:
        setback = refusal_of(server.url, credentials)
        assert not server.paths
    assert setback.reason in {"CertificateRefused", "GitOperationFailed"}
    assert "PRIVATE KEY" not in setback.message


def proxy_credentials(address: str, credentials: Credentials | None, password: str = SECRET) -> Credentials:
    content = {"address": address, "username": "me", "password": password}
    encoded = {key: text.encode() for key, text in content.items()}
    return with_proxy(credentials, SecretTexts("apps/proxy", encoded), Transport.HTTPS)


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_a_proxy_is_used_and_its_password_is_in_no_argument(
    root: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch, secure: bool
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    trusted = Credentials(tls=Tls(pem(authority)))
    tls = server_side(authority) if secure else None
    with http_proxy(f"me:{SECRET}") as proxy, git_server(root, tls=tls) as server:
        assert "refs/heads/main" in list_references(server.url, proxy_credentials(proxy.address, trusted))
        assert proxy.targets
        assert server.command_lines
        assert not [line for line in server.command_lines if any(each in line for each in FORMS)]


def test_a_proxys_refusal_is_reported_without_its_password(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with http_proxy("me:other") as proxy, git_server(root) as server:
        setback = refusal_of(server.url, proxy_credentials(proxy.address, None))
        assert not server.paths
    assert setback.reason == "AuthenticationFailed"
    assert not [form for form in FORMS if form in setback.message + caplog.text]


def test_a_proxys_credentials_are_not_the_servers(root: Path) -> None:
    with http_proxy(f"me:{SECRET}") as proxy, git_server(root) as server:
        list_references(server.url, proxy_credentials(proxy.address, None))
        assert not any(server.authorizations)


def test_each_proof_makes_another_identity(authority: trustme.CA) -> None:
    each = (
        Credentials(), Credentials("me", SECRET), Credentials(bearer=SECRET),
        Credentials(tls=Tls(pem(authority))), Credentials(tls=client(authority)), Credentials(ssh_key="KEY"),
        Credentials(ssh_key="KEY", key_password=SECRET), Credentials(known_hosts="host"),
        Credentials(proxy="http://p"),
    )  # fmt: skip
    assert len({credentials.identity for credentials in each}) == len(each)
    assert not any(SECRET in repr(credentials) for credentials in each)


def test_a_secret_with_everything_becomes_credentials_that_work(root: Path, authority: trustme.CA) -> None:
    clients = trustme.CA()
    texts = client(clients, authority)
    content = {
        "username": b"me",
        "password": SECRET.encode(),
        "ca.crt": texts.authority.encode(),
        "tls.crt": texts.certificate.encode(),
        "tls.key": texts.key.encode(),
    }
    credentials = credentials_from(SecretTexts("apps/git", content), Transport.HTTPS)
    tls = server_side(authority, clients)
    with git_server(root, login=f"me:{SECRET}", tls=tls) as server:
        assert "refs/heads/main" in list_references(server.url, credentials)


def test_nothing_of_ours_is_left_running_with_a_secret() -> None:
    assert not [line for line in command_lines() if SECRET in line]
