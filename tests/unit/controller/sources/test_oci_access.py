"""Who may read: logins, tokens and certificates, against real registries that ask for them."""

from __future__ import annotations

import base64
import json
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from controller.runtime.hosts import Hosts
from controller.runtime.secret_texts import Binding, SecretContent
from controller.runtime.setbacks import Failed, Setback, Stalled
from tests.git_http import http_proxy
from tests.registry.artifacts import Pusher, flux
from tests.registry.front import Front, before
from tests.registry.htpasswd import LOGIN, guarded_registry
from tests.registry.program import run_registry
from tests.registry.tokens import Tokens, token_service
from tests.worlds.sources import Opener, confined_opener, opener, read_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES: dict[str, str | bytes] = {"flags.json": "{}"}
USER, PASSWORD = LOGIN.username, LOGIN.password


def docker_config(host: str, password: str = PASSWORD, user: str = USER) -> dict[str, bytes]:
    """As `kubectl create secret docker-registry` makes it."""
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    entry = {"username": user, "password": password, "auth": auth}
    return {".dockerconfigjson": json.dumps({"auths": {host: entry}}).encode()}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A registry that wants a login, with team/flags:latest."""
    with guarded_registry(tmp_path_factory.mktemp("guarded")) as port:
        Pusher(f"http://127.0.0.1:{port}", {"Authorization": LOGIN.basic}).push(
            "team/flags", "latest", flux(FILES)
        )
        yield port


@pytest.fixture
def front(guarded: int) -> Iterator[Front]:
    with before(guarded) as front:
        yield front


async def refusal_of(sources: Opener, host: str, **oci: Any) -> Setback:
    with pytest.raises(Setback) as raised:
        await (await sources.open(f"oci://{host}/team/flags", **oci)).resolve()
    return raised.value


BY_SECRET = {"secretRef": {"name": "login"}}


async def test_a_login_lets_in_and_is_asked_for_once(front: Front, tmp_path: Path) -> None:
    async with opener(login=docker_config(front.host)) as sources:
        source = await sources.open(f"oci://{front.host}/team/flags", **BY_SECRET)
        await source.fetch(await source.resolve(), tmp_path)
        assert front.authorizations[:2] == [None, LOGIN.basic]
        front.asked.clear()
        await (await sources.open(f"oci://{front.host}/team/flags", **BY_SECRET)).resolve()
    assert read_files(tmp_path) == FILES
    assert len(front.asked) == 1


async def test_a_login_is_sent_to_no_host_that_its_annotation_does_not_name(front: Front) -> None:
    login = SecretContent(docker_config(front.host), Binding("shop", "login", ("registry.example.com",)))
    async with opener(login=login) as sources:
        setback = await refusal_of(sources, front.host, **BY_SECRET)
    assert "Secret shop/login may not be used for host 127.0.0.1" in setback.message
    assert front.asked == []


async def test_no_login_and_a_wrong_password_are_reported(front: Front) -> None:
    async with opener(login=docker_config(front.host, "wrong")) as sources:
        nobody = await refusal_of(sources, front.host)
        wrong = await refusal_of(sources, front.host, **BY_SECRET)
    assert (nobody.reason, wrong.reason) == ("AuthenticationFailed", "AuthenticationFailed")
    assert isinstance(wrong, Failed)
    assert "wrong" not in wrong.message


async def test_a_new_password_counts_from_the_next_look(front: Front) -> None:
    async with opener(login=docker_config(front.host)) as sources:
        await (await sources.open(f"oci://{front.host}/team/flags", **BY_SECRET)).resolve()
        sources.secrets["login"] = docker_config(front.host, "revoked")
        assert (await refusal_of(sources, front.host, **BY_SECRET)).reason == "AuthenticationFailed"
        sources.secrets["login"] = docker_config(front.host)
        await (await sources.open(f"oci://{front.host}/team/flags", **BY_SECRET)).resolve()


async def test_a_missing_secret_or_one_without_a_login_for_the_host_is_reported(front: Front) -> None:
    async with opener(other=docker_config("registry.example.com"), empty={}) as sources:
        missing = await refusal_of(sources, front.host, **BY_SECRET)
        other = await refusal_of(sources, front.host, secretRef={"name": "other"})
        empty = await refusal_of(sources, front.host, secretRef={"name": "empty"})
    assert "Secret shop/login does not exist" in missing.message
    assert (other.reason, "no login for 127.0.0.1" in other.message) == ("InvalidSecret", True)
    assert (empty.reason, ".dockerconfigjson" in empty.message) == ("InvalidSecret", True)


async def test_a_blob_elsewhere_is_fetched_without_the_login(
    front: Front, guarded: int, tmp_path: Path
) -> None:
    with before(guarded) as storage:
        blobs: dict[str, Any] = {}

        def keeps(asked: str, answer: Any) -> Any:
            return blobs.get(asked.partition(" ")[2], answer)

        def sends_on(asked: str, answer: Any) -> Any:
            path = asked.partition(" ")[2]
            if "/blobs/" not in path or answer.status != 200:
                return None
            blobs[path] = answer
            headers = {"Location": f"http://{storage.host}{path}"}
            return type(answer)(307, headers)

        front.instead, storage.instead = sends_on, keeps
        async with opener(login=docker_config(front.host)) as sources:
            source = await sources.open(f"oci://{front.host}/team/flags", **BY_SECRET)
            await source.fetch(await source.resolve(), tmp_path)
        assert storage.authorizations == [None]
    assert read_files(tmp_path) == FILES


BY_PROXY = {**BY_SECRET, "proxySecretRef": {"name": "proxy"}}
PROXY_LOGIN = {"username": b"ada", "password": b"way:out"}


async def test_a_proxy_of_a_secret_is_asked_for_everything(front: Front, tmp_path: Path) -> None:
    with http_proxy("ada:way:out") as proxy:
        by = {"address": proxy.address.encode(), **PROXY_LOGIN}
        async with opener(login=docker_config(front.host), proxy=by) as sources:
            source = await sources.open(f"oci://{front.host}/team/flags", **BY_PROXY)
            await source.fetch(await source.resolve(), tmp_path)
            assert read_files(tmp_path) == FILES
            assert len(proxy.targets) == len(front.asked)
            sources.secrets["proxy"] = {"address": proxy.address.encode()}
            refusal = await refusal_of(sources, front.host, **BY_PROXY)
    assert (refusal.reason, "407" in refusal.message) == ("AuthenticationFailed", True)


async def test_a_proxy_is_tunnelled_through_to_https(
    private: int, authority: trustme.CA, tmp_path: Path
) -> None:
    with http_proxy("ada:way:out") as proxy:
        by = {"address": proxy.address.encode(), **PROXY_LOGIN}
        by_tunnel = {**CERTIFICATES, "proxySecretRef": {"name": "proxy"}}
        async with opener(tls=client(authority), proxy=by) as sources:
            source = await sources.open(f"oci://127.0.0.1:{private}/team/flags", **by_tunnel)
            await source.fetch(await source.resolve(), tmp_path)
            assert read_files(tmp_path) == FILES
            assert set(proxy.targets) == {f"127.0.0.1:{private}"}
            sources.secrets["proxy"] = {**by, "password": b"guessed"}
            refusal = await refusal_of(sources, f"127.0.0.1:{private}", **by_tunnel)
    assert refusal.reason == "AuthenticationFailed"
    assert refusal.message.endswith("the proxy answers 407")


async def test_a_proxy_that_reads_the_login_must_be_named_by_its_annotation(front: Front) -> None:
    login = SecretContent(docker_config(front.host), Binding("shop", "login", ("127.0.0.1",)))
    async with opener(login=login, proxy={"address": b"http://proxy.example.com:3128"}) as sources:
        refusal = await refusal_of(sources, front.host, **BY_PROXY)
    assert "Secret shop/login may not be used for host proxy.example.com" in refusal.message


@pytest.mark.parametrize("address", [b"https://127.0.0.1:1", b"socks5://127.0.0.1:1", b"127.0.0.1:1"])
async def test_a_proxy_of_another_protocol_is_refused(front: Front, address: bytes) -> None:
    async with opener(login=docker_config(front.host), proxy={"address": address}) as sources:
        refusal = await refusal_of(sources, front.host, **BY_PROXY)
    assert (refusal.reason, "http://" in refusal.message) == ("InvalidSecret", True)


async def test_a_proxy_may_not_be_where_no_source_may_be(front: Front) -> None:
    hosts = Hosts((), ("127.0.0.0/8",))
    async with confined_opener(hosts) as sources:
        sources.secrets["proxy"] = {"address": b"http://127.0.0.1:1"}
        by = {"proxySecretRef": {"name": "proxy"}}
        refusal = await refusal_of(sources, "registry.example.com", **by)
        assert "host 127.0.0.1 has the address 127.0.0.1, denied" in refusal.message
        hosts_by_name = await refusal_of(sources, front.host, **by)
    assert (refusal.reason, hosts_by_name.reason) == ("HostDenied", "HostDenied")


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[Tokens]:
    with token_service(f"{USER}:{PASSWORD}", tmp_path) as service:
        yield service


async def test_a_login_is_sent_to_no_token_service_that_its_annotation_does_not_name(
    tokens: Tokens, tmp_path: Path
) -> None:
    tokens.realm = tokens.realm.replace("127.0.0.1", "localhost")
    with run_registry(tmp_path, **tokens.configuration) as port:
        login = SecretContent(docker_config(f"127.0.0.1:{port}"), Binding("shop", "login", ("127.0.0.1",)))
        async with opener(login=login) as sources:
            setback = await refusal_of(sources, f"127.0.0.1:{port}", **BY_SECRET)
    assert "Secret shop/login may not be used for host localhost" in setback.message
    assert tokens.asked == []


async def test_a_token_is_asked_for_once_and_again_when_it_ends(tokens: Tokens, tmp_path: Path) -> None:
    with run_registry(tmp_path, **tokens.configuration) as port, before(port) as front:
        bearer = f"Bearer {tokens.token('repository:team/flags:pull,push')}"
        Pusher(f"http://127.0.0.1:{port}", {"Authorization": bearer}).push(
            "team/flags", "latest", flux(FILES)
        )
        into = tmp_path / "into"
        into.mkdir()
        async with opener(
            login=docker_config(front.host), wrong=docker_config(front.host, "wrong")
        ) as sources:
            source = await sources.open(f"oci://{front.host}/team/flags", **BY_SECRET)
            await source.fetch(await source.resolve(), into)
            assert read_files(into) == FILES
            assert len(tokens.asked) == 1
            assert "scope=repository:team/flags:pull" in tokens.asked[0]
            front.asked.clear()
            await (await sources.open(f"oci://{front.host}/team/flags", **BY_SECRET)).resolve()
            assert (len(front.asked), len(tokens.asked)) == (1, 1)

            def answer_expired(asked: str, answer: Any) -> Any:
                front.instead = lambda asked, answer: None
                challenge = f'Bearer realm="{tokens.realm}",service="registry.tests",error="invalid_token"'
                return type(answer)(401, {"WWW-Authenticate": challenge})

            front.instead = answer_expired
            await (await sources.open(f"oci://{front.host}/team/flags", **BY_SECRET)).resolve()
            assert len(tokens.asked) == 2
            refusal = await refusal_of(sources, front.host, secretRef={"name": "wrong"})
            assert refusal.reason == "AuthenticationFailed"
            # A login is for the registry's own service and for nobody else's.
            assert all(each is None or each.startswith("Bearer ") for each in front.authorizations)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[int]:
    """A registry with a certificate of `authority`, which wants one of a client."""
    folder = tmp_path_factory.mktemp("private")
    server = authority.issue_cert("127.0.0.1")
    server.private_key_pem.write_to_path(folder / "key.pem")
    for each in server.cert_chain_pems:
        each.write_to_path(folder / "cert.pem", append=True)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    files = {"certificate": "cert.pem", "key": "key.pem"}
    tls: dict[str, Any] = {name: str(folder / file) for name, file in files.items()}
    tls["clientcas"] = [str(folder / "ca.pem")]
    with run_registry(folder, http={"tls": tls}) as port:
        context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
        authority.issue_cert("pusher").configure_cert(context)
        Pusher(f"https://127.0.0.1:{port}", tls=context).push("team/flags", "latest", flux(FILES))
        yield port


CERTIFICATES = {"certSecretRef": {"name": "tls"}, "insecure": False}


def client(authority: trustme.CA) -> dict[str, bytes]:
    leaf = authority.issue_cert("flagstaff")
    return {
        "ca.crt": authority.cert_pem.bytes(),
        "tls.crt": leaf.cert_chain_pems[0].bytes(),
        "tls.key": leaf.private_key_pem.bytes(),
    }


async def test_certificates_of_the_secret_are_trusted_and_presented(
    private: int, authority: trustme.CA, tmp_path: Path
) -> None:
    async with opener(tls=client(authority)) as sources:
        source = await sources.open(f"oci://127.0.0.1:{private}/team/flags", **CERTIFICATES)
        await source.fetch(await source.resolve(), tmp_path)
    assert read_files(tmp_path) == FILES


async def test_a_registry_that_is_not_trusted_and_one_that_does_not_trust_us_are_reported(
    private: int, authority: trustme.CA
) -> None:
    secrets = {"tls": client(authority), "other": client(trustme.CA())}
    secrets["lone"] = {"ca.crt": authority.cert_pem.bytes()}
    host = f"127.0.0.1:{private}"
    async with opener(**secrets) as sources:
        stranger = await refusal_of(sources, host, insecure=False, certSecretRef={"name": "other"})
        unknown = await refusal_of(sources, host, insecure=False)
        shy = await refusal_of(sources, host, insecure=False, certSecretRef={"name": "lone"})
    assert (stranger.reason, unknown.reason) == ("CertificateRefused", "CertificateRefused")
    assert isinstance(shy, Failed)


async def test_certificates_that_do_not_fit_are_reported(private: int, authority: trustme.CA) -> None:
    mixed = {**client(authority), "tls.key": authority.issue_cert("other").private_key_pem.bytes()}
    async with opener(tls=mixed, half={"tls.crt": client(authority)["tls.crt"]}) as sources:
        refusal = await refusal_of(sources, f"127.0.0.1:{private}", **CERTIFICATES)
        half = await refusal_of(
            sources, f"127.0.0.1:{private}", insecure=False, certSecretRef={"name": "half"}
        )
    assert (refusal.reason, isinstance(refusal, Stalled)) == ("InvalidSecret", True)
    assert (half.reason, "'tls.key'" in half.message) == ("InvalidSecret", True)


async def test_plain_http_is_never_taken_unless_it_is_asked_for(front: Front) -> None:
    async with opener(login=docker_config(front.host)) as sources:
        refusal = await refusal_of(sources, front.host, insecure=False, **BY_SECRET)
    assert isinstance(refusal, Failed)
    assert front.authorizations == []
