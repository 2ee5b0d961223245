"""Kubeconfigs of users: what is read of them, and what is refused with which advice."""

from __future__ import annotations

import base64
import json
from copy import deepcopy
from typing import Any, Final

import pytest
import trustme
import yaml
from hypothesis import given
from hypothesis import strategies as st

from controller.api.parsing import InvalidTextError
from controller.kube.remote_access import read_kubeconfig, read_token_access
from controller.runtime.secret_texts import Tls

AUTHORITY: Final = trustme.CA()
CLIENT: Final = AUTHORITY.issue_cert("flags")
PEM: Final = AUTHORITY.cert_pem.bytes()
SERVER: Final = "https://eu.example.com:6443"


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


def kubeconfig(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> dict[str, Any]:
    """As `kubectl config view --raw --flatten` prints it."""
    own = {"server": SERVER, "certificate-authority-data": encoded(PEM)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": "eu",
        "contexts": [{"name": "eu", "context": {"cluster": "eu", "user": "flags", "namespace": "shop"}}],
        "clusters": [{"name": "eu", "cluster": own | (cluster or {})}],
        "users": [{"name": "flags", "user": {"token": "secret-token"} if user is None else user}],
    }


def text(document: Any) -> bytes:
    return yaml.safe_dump(document).encode()


def refusal_of(document: bytes) -> str:
    with pytest.raises(InvalidTextError) as caught:
        read_kubeconfig(document)
    return str(caught.value)


def test_a_token_and_an_authority_are_read() -> None:
    access = read_kubeconfig(text(kubeconfig()))
    assert (access.server, access.token) == (SERVER, "secret-token")
    assert access.tls == Tls(PEM.decode())


def test_json_is_read_and_the_certificate_of_a_client() -> None:
    key = CLIENT.private_key_pem.bytes()
    chain = b"".join(one.bytes() for one in CLIENT.cert_chain_pems)
    user = {"client-certificate-data": encoded(chain), "client-key-data": encoded(key)}
    access = read_kubeconfig(json.dumps(kubeconfig({"server": f"{SERVER}/clusters/a/"}, user)).encode())
    assert (access.server, access.token) == (f"{SERVER}/clusters/a", "")
    assert (access.tls.certificate, access.tls.key) == (chain.decode(), key.decode())


def test_a_cluster_may_have_no_authority() -> None:
    assert read_kubeconfig(text(kubeconfig({"certificate-authority-data": ""}))).tls == Tls()


USERS_FIELD: Final = "kubeconfig.users.0.user"
CLUSTERS_FIELD: Final = "kubeconfig.clusters.0.cluster"
NO_PROGRAM: Final = (
    "no program is run for credentials: write token, or client-certificate-data and client-key-data, or use "
    "spec.kubeConfig.configMapRef"
)


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"exec": {"command": "aws"}}, f"exec: {NO_PROGRAM}"),
        ({"auth-provider": {"name": "gcp"}}, f"auth-provider: {NO_PROGRAM}"),
        ({"tokenFile": "/var/run/token"}, "tokenFile: no file is read: write token"),
        ({"client-certificate": "/a"}, "client-certificate: no file is read: write client-certificate-data"),
        ({"client-key": "/a"}, "client-key: no file is read: write client-key-data"),
        ({"username": "me"}, "username: an API server takes no password: write token"),
        ({"as": "admin"}, "as: set spec.serviceAccountName to act as a service account of that cluster"),
        ({"surprise": 1}, "surprise: is not known"),
    ],
)
def test_a_user_is_refused(user: dict[str, Any], message: str) -> None:
    assert refusal_of(text(kubeconfig(user={"token": "a"} | user))) == f"{USERS_FIELD}.{message}"


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (
            {"insecure-skip-tls-verify": True},
            "insecure-skip-tls-verify: the certificate is always verified: write certificate-authority-data",
        ),
        (
            {"certificate-authority": "/etc/passwd"},
            "certificate-authority: no file is read: write certificate-authority-data",
        ),
        (
            {"proxy-url": "http://a"},
            "proxy-url: no proxy is used: write a server that the controller reaches",
        ),
        ({"tls-server-name": "a"}, "tls-server-name: the certificate must be that of the host in server"),
    ],
)
def test_a_cluster_is_refused(cluster: dict[str, Any], message: str) -> None:
    assert refusal_of(text(kubeconfig(cluster))) == f"{CLUSTERS_FIELD}.{message}"


@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        ({"server": "http://eu"}, None, "server must be https://HOST:PORT: credentials are sent to it"),
        ({"server": "eu:6443"}, None, "server must be https://HOST:PORT: credentials are sent to it"),
        ({"server": "https://me:a@eu"}, None, "server must have no user, query or fragment"),
        (
            {"server": f"https://{'a' * 512}"},
            None,
            "server must be https://HOST:PORT: credentials are sent to it",
        ),
        ({"server": "https://[eu"}, None, "server is not a URL; write https://HOST:6443"),
        ({"certificate-authority-data": "!"}, None, "certificate-authority-data has no certificate in PEM"),
        ({"certificate-authority-data": "a"}, None, "certificate-authority-data is not PEM in base64"),
        ({}, {}, "the user has no credentials: write token, or a client's certificate and key"),
        (
            {},
            {"client-certificate-data": encoded(PEM)},
            "client-certificate-data and client-key-data must be there together",
        ),
        ({}, {"token": "a\nb"}, "token has a space, a line break or a character that is not ASCII"),
    ],
)
def test_what_cannot_be_used_is_refused(
    cluster: dict[str, Any], user: dict[str, Any] | None, message: str
) -> None:
    assert refusal_of(text(kubeconfig(cluster, user))) == message


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"", "it is no kubeconfig (empty-document)"),
        (b"- a", "it is no kubeconfig (not-an-object)"),
        (b"\xff", "it is no kubeconfig (not-utf-8)"),
        (b"a: " + b"b" * 70_000, "it is no kubeconfig (too-large)"),
        (b"a: 1\na: 2", "it is no kubeconfig (duplicate-key)"),
        (b"a: &a [1]\nb: {a: [" + b"*a," * 5_000 + b"]}", "it is no kubeconfig (too-large)"),
        (
            text(kubeconfig() | {"current-context": "us"}),
            "contexts has no entry of the name that current-context says",
        ),
        (
            text(kubeconfig() | {"clusters": []}),
            "clusters has no entry of the name that the context's cluster says",
        ),
        (text(kubeconfig() | {"users": []}), "users has no entry of the name that the context's user says"),
    ],
)
def test_what_is_no_kubeconfig_is_refused(document: bytes, message: str) -> None:
    assert refusal_of(document) == message


REFUSED: Final = (
    "exec", "auth-provider", "certificate-authority", "client-certificate", "client-key", "tokenFile",
    "insecure-skip-tls-verify", "proxy-url", "tls-server-name", "as", "as-uid", "as-groups", "as-user-extra",
    "username", "password",
)  # fmt: skip
VALUES: Final = st.one_of(st.none(), st.booleans(), st.text(max_size=5), st.just({"command": "sh"}))


def holders(document: Any) -> list[dict[str, Any]]:
    """Every object in a document that a client may read fields of."""
    if isinstance(document, list):
        return [one for entry in document for one in holders(entry)]
    if not isinstance(document, dict):
        return []
    below = [
        one
        for name, part in document.items()
        if name not in {"extensions", "preferences"}
        for one in holders(part)
    ]
    return [document, *below]


@given(st.data())
def test_no_kubeconfig_with_a_refused_field_passes_wherever_it_stands(data: st.DataObject) -> None:
    document = deepcopy(kubeconfig())
    for name in ("clusters", "users", "contexts"):
        if data.draw(st.booleans(), label=f"another of {name}"):
            document[name].append(deepcopy(document[name][0]) | {"name": "other"})
    holder = data.draw(st.sampled_from(holders(document)))
    holder[data.draw(st.sampled_from(REFUSED))] = data.draw(VALUES)
    assert refusal_of(text(document)).startswith("kubeconfig.")


@given(
    st.recursive(
        st.one_of(st.none(), st.text(), st.integers()),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_anything_is_refused_in_words(document: Any) -> None:
    assert refusal_of(text(document))


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_in_words(document: bytes) -> None:
    assert refusal_of(document)


@given(st.sampled_from(["server", "certificate-authority-data", "token"]), st.text(min_size=8))
def test_no_message_quotes_a_value(field: str, value: str) -> None:
    given_cluster = {} if field == "token" else {field: value}
    given_user = {"token": value} if field == "token" else None
    message = ""
    try:
        read_kubeconfig(text(kubeconfig(given_cluster, given_user)))
    except InvalidTextError as error:
        message = str(error)
    assert value not in message


GENERIC: Final = {"provider": b"generic", "address": SERVER.encode(), "serviceAccountName": b"flags"}


def test_tokens_are_for_the_address_unless_audiences_are_given() -> None:
    assert read_token_access(GENERIC).audiences == (SERVER,)
    access = read_token_access({**GENERIC, "audiences": b"a\nb\n", "ca.crt": PEM})
    assert (access.audiences, access.account) == (("a", "b"), "flags")
    assert access.tls == Tls(PEM.decode().strip())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"provider": b"aws"},
            "provider aws is not supported: write generic where the cluster trusts tokens of this one, or a "
            "kubeconfig into a Secret (spec.kubeConfig.secretRef)",
        ),
        ({"provider": b""}, "provider must be generic"),
        ({"address": b"http://eu"}, "address must be https://HOST:PORT: credentials are sent to it"),
        (
            {"cluster": b"a"},
            "'cluster' is not known; it may have address, audiences, ca.crt, provider, serviceAccountName",
        ),
        (
            {"serviceAccountName": b""},
            "serviceAccountName is missing: the service account of this namespace whose token is shown; the "
            "controller shows none of its own",
        ),
        ({"audiences": b"a\n" * 9}, "audiences has more than 8 lines"),
        ({"ca.crt": b"a"}, "ca.crt has no certificate in PEM"),
        ({"address": "https://ü".encode()}, "address has a character that is not ASCII"),
        ({"address": b"https://a\nb"}, "address must be one line"),
        ({"ca.crt": b"a" * 70_000}, "ca.crt is longer than 65536 bytes"),
    ],
)
def test_a_config_map_is_refused(data: dict[str, bytes], message: str) -> None:
    with pytest.raises(InvalidTextError) as caught:
        read_token_access({**GENERIC, **data})
    assert str(caught.value) == message
