from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api.addresses import Transport
from controller.runtime.secret_texts import SecretTexts, Tls
from controller.runtime.setbacks import Stalled
from controller.sources.git_credentials import Credentials, credentials_from, with_proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

NAME = "apps/git"
HOSTS = "h ssh-ed25519 AAAA"
LOCK = "0pen-it"
AUTHORITY = trustme.CA()
CA = AUTHORITY.cert_pem.bytes()
ISSUED = AUTHORITY.issue_cert("someone@example.com")
CERTIFICATE = ISSUED.cert_chain_pems[0].bytes()
KEY = ISSUED.private_key_pem.bytes()


def http(content: Mapping[str, bytes]) -> Credentials | None:
    return credentials_from(SecretTexts(NAME, content), Transport.HTTPS)


def ssh(content: Mapping[str, bytes]) -> Credentials | None:
    return credentials_from(SecretTexts(NAME, content), Transport.SSH)


def proxy(content: Mapping[str, bytes]) -> Credentials | None:
    return with_proxy(None, SecretTexts(NAME, content), Transport.HTTPS)


def made_key(folder: Path, *options: str) -> bytes:
    file = folder / "key"
    subprocess.run(["ssh-keygen", "-q", *options, "-f", str(file)], check=True)
    return file.read_bytes()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"username": b"me", "password": b"x"}, Credentials("me", "x")),
        ({"username": b"me\n", "password": b"x\r\n"}, Credentials("me", "x")),
        ({"bearerToken": b"x\n"}, Credentials(bearer="x")),
        ({"ca.crt": CA}, Credentials(tls=Tls(CA.decode().strip()))),
        ({"caFile": CA}, Credentials(tls=Tls(CA.decode().strip()))),
        ({"ca.crt": CA, "caFile": b"ignored"}, Credentials(tls=Tls(CA.decode().strip()))),
        (
            {"tls.crt": CERTIFICATE, "tls.key": KEY},
            Credentials(tls=Tls("", CERTIFICATE.decode().strip(), KEY.decode().strip())),
        ),
        ({}, None),
        ({"identity": b"of another", "note": b"x"}, None),
    ],
    ids=[
        *("basic", "line breaks", "bearer", "ca.crt", "caFile", "ca.crt wins", "certificate"),
        *("empty", "nothing for http"),
    ],
)
def test_flux_formats_for_http_are_read(content: dict[str, bytes], expected: Credentials | None) -> None:
    assert http(content) == expected


def test_flux_format_for_ssh_is_read(tmp_path: Path) -> None:
    key = made_key(tmp_path, "-t", "ed25519", "-N", "")
    found = ssh({"identity": key, "known_hosts": HOSTS.encode(), "identity.pub": b"public"})
    assert found == Credentials(ssh_key=key.decode().strip(), known_hosts=HOSTS)


def test_a_repository_on_this_machine_asks_for_nothing() -> None:
    assert credentials_from(SecretTexts(NAME, {"password": b"x"}), Transport.FILE) is None


KINDS_OF_KEY = {
    "OpenSSH": ("-t", "ed25519"),
    "PEM": ("-t", "rsa", "-b", "1024", "-m", "PEM"),
    "PKCS #8": ("-t", "ecdsa", "-m", "PKCS8"),
}


@pytest.mark.parametrize("options", KINDS_OF_KEY.values(), ids=KINDS_OF_KEY)
def test_a_key_with_a_password_needs_it(tmp_path: Path, options: tuple[str, ...]) -> None:
    key = made_key(tmp_path, *options, "-N", LOCK)
    content = {"identity": key, "known_hosts": HOSTS.encode()}
    with pytest.raises(Stalled, match=r"'identity' is an encrypted key; add its passphrase as 'password'"):
        ssh(content)
    found = ssh(content | {"password": LOCK.encode() + b"\n"})
    assert found is not None
    assert found.key_password == LOCK


@pytest.mark.parametrize("options", KINDS_OF_KEY.values(), ids=KINDS_OF_KEY)
def test_a_password_that_no_key_needs_is_left_out(tmp_path: Path, options: tuple[str, ...]) -> None:
    key = made_key(tmp_path, *options, "-N", "")
    found = ssh({"identity": key, "known_hosts": HOSTS.encode(), "password": b"x"})
    assert found is not None
    assert found.key_password == ""


REFUSED: dict[str, tuple[Callable[[Mapping[str, bytes]], Credentials | None], dict[str, bytes], str]] = {
    "both": (http, {"bearerToken": b"x", "username": b"x", "password": b"x"}, "both 'bearerToken' and"),
    "no username": (http, {"password": b"x"}, "'password' without 'username'"),
    "no password": (http, {"username": b"x"}, "'username' without 'password'"),
    "two lines": (http, {"bearerToken": b"x\ny"}, "'bearerToken' contains a line break"),
    "not text": (http, {"bearerToken": b"\xff"}, "'bearerToken' is not UTF-8"),
    "a NUL": (http, {"ca.crt": b"x\0"}, "'ca.crt' contains a NUL"),
    "too long": (http, {"ca.crt": b"x" * 70_000}, "'ca.crt' is longer than 65536"),
    "no PEM": (http, {"ca.crt": b"x"}, "'ca.crt' contains no certificate in PEM"),
    "a key as CA": (http, {"ca.crt": KEY}, "'ca.crt' contains no certificate in PEM"),
    "no key": (http, {"tls.crt": CERTIFICATE}, "'tls.crt' without 'tls.key'"),
    "no certificate": (http, {"tls.key": KEY}, "'tls.key' without 'tls.crt'"),
    "no identity": (ssh, {"known_hosts": b"x"}, "'identity' is missing.*has 'known_hosts'"),
    "no known_hosts": (ssh, {"identity": b"x"}, "'known_hosts' is missing"),
    "no ssh at all": (ssh, {}, "'identity' is missing.*no key at all"),
    "no private key": (ssh, {"identity": b"x", "known_hosts": b"x"}, "'identity' is not a private key"),
    "a damaged key": (
        ssh,
        {
            "identity": b"-----BEGIN OPENSSH PRIVATE KEY-----\nx\n-----END OPENSSH PRIVATE KEY-----",
            "known_hosts": b"x",
        },
        "'identity' is damaged",
    ),
    "no address": (proxy, {"username": b"x"}, "'address' is missing, which is required for a proxy"),
    "another proxy": (proxy, {"address": b"ftp://h"}, "'address' is not a proxy URL"),
    "no host": (proxy, {"address": b"http://"}, "'address' is not a proxy URL"),
    "no URL": (proxy, {"address": b"http://[h"}, "'address' is not a proxy URL"),
    "a long address": (proxy, {"address": b"http://h/" + b"x" * 2048}, "'address' is not a proxy URL"),
    "a login in it": (proxy, {"address": b"http://x:x@h"}, "'address' holds a username"),
    "half a login": (proxy, {"address": b"http://h", "password": b"x"}, "'password' without 'username'"),
}


@pytest.mark.parametrize(("read", "content", "why"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_secret_is_named_with_its_key(
    read: Callable[[Mapping[str, bytes]], Credentials | None], content: dict[str, bytes], why: str
) -> None:
    with pytest.raises(Stalled, match=why) as setback:
        read(content)
    assert setback.value.reason == "InvalidSecret"
    assert setback.value.message.startswith("Secret apps/git: ")


@pytest.mark.parametrize("transport", [Transport.SSH, Transport.FILE])
def test_a_proxy_is_for_http_alone(transport: Transport) -> None:
    with pytest.raises(Stalled, match="with http and https only"):
        with_proxy(None, SecretTexts(NAME, {"address": b"http://h"}), transport)


@pytest.mark.parametrize(
    ("content", "url"),
    [
        ({"address": b"http://h:3128\n"}, "http://h:3128"),
        ({"address": b"socks5://h", "username": b"a@b", "password": b"x/:@"}, "a%40b:x%2F%3A%40@h"),
    ],
)
def test_a_proxy_is_added_to_what_else_is_proven(content: dict[str, bytes], url: str) -> None:
    found = with_proxy(Credentials("me", "x"), SecretTexts(NAME, content), Transport.HTTPS)
    assert (found.username, found.proxy.removeprefix("socks5://")) == ("me", url)


KEYS = ("username", "password", "bearerToken", "identity", "known_hosts", "ca.crt", "tls.crt")


@settings(max_examples=150)
@given(
    st.dictionaries(st.sampled_from((*KEYS, "tls.key", "address")), st.integers(0, 5)),
    st.sampled_from([http, ssh, proxy]),
)
def test_no_message_repeats_a_value(
    which: dict[str, int], read: Callable[[Mapping[str, bytes]], Credentials | None]
) -> None:
    shapes = (b"s3cr3t", b"s3cr3t\ns3cr3t", b"\xffs3cr3t", b"-----BEGIN s3cr3t", b"http://s3cr3t?", b"")
    try:
        shown = repr(read({key: shapes[shape] for key, shape in which.items()}))
    except Stalled as setback:
        shown = f"{setback}{setback.__cause__}"
    assert "s3cr3t" not in shown
