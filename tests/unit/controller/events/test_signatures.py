"""Who is believed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.events.pushes import Sender, is_signed
from tests.worlds.events import OLD, TOKEN, headers_of, hexdigest

BODY = b'{"ref": "refs/heads/main"}'
SENDERS: tuple[Sender, ...] = ("github", "gitea", "gitlab", "generic-hmac")
HUB = "x-hub-signature-256"


def digest(algorithm: str) -> str:
    return f"{algorithm}={hexdigest(BODY, algorithm=algorithm)}"


@pytest.mark.parametrize("sender", SENDERS)
def test_delivery_with_another_token_is_refused(sender: Sender) -> None:
    assert is_signed(sender, headers_of(sender, BODY), BODY, [TOKEN])
    assert not is_signed(sender, headers_of(sender, BODY, token=b"a guess"), BODY, [TOKEN])


@pytest.mark.parametrize("sender", SENDERS)
def test_while_a_token_is_changed_both_are_believed(sender: Sender) -> None:
    for token in (TOKEN, OLD):
        assert is_signed(sender, headers_of(sender, BODY, token=token), BODY, [TOKEN, OLD])


@pytest.mark.parametrize("sender", SENDERS)
def test_without_a_token_no_sender_is_accepted(sender: Sender) -> None:
    assert not is_signed(sender, headers_of(sender, BODY, token=b""), BODY, [b""])
    assert not is_signed(sender, headers_of(sender, BODY), BODY, [])


@pytest.mark.parametrize("sender", [each for each in SENDERS if each != "gitlab"])
def test_one_changed_byte_of_the_body_is_noticed(sender: Sender) -> None:
    assert not is_signed(sender, headers_of(sender, BODY), BODY.replace(b"main", b"evil"), [TOKEN])


@pytest.mark.parametrize(
    ("sender", "headers", "believed"),
    [
        pytest.param("github", {HUB: "sha256=" + hexdigest(BODY).upper()}, True, id="capitals"),
        pytest.param("github", {"x-hub-signature": digest("sha1")}, False, id="sha1"),
        pytest.param("github", {HUB: hexdigest(BODY)}, False, id="no algorithm"),
        pytest.param("github", {HUB: digest("sha512")}, False, id="not GitHub's algorithm"),
        pytest.param("github", {HUB: "sha256="}, False, id="no digits"),
        pytest.param("github", {HUB: "sha256=\xe9"}, False, id="no hexadecimal digits"),
        pytest.param("github", {}, False, id="no header"),
        pytest.param("gitea", {HUB: digest("sha256")}, True, id="gitea in GitHub's way"),
        pytest.param("gitea", {"x-gitea-signature": "", HUB: digest("sha256")}, False, id="gitea's own"),
        pytest.param("generic-hmac", {"x-signature": digest("sha512")}, True, id="sha512"),
        pytest.param("generic-hmac", {"x-signature": digest("sha1")}, False, id="generic sha1"),
        pytest.param("generic-hmac", {"x-signature": digest("md5")}, False, id="md5"),
        pytest.param("gitlab", {}, False, id="gitlab without a token"),
        pytest.param("gitlab", {"x-gitlab-token": f"{TOKEN.decode()} "}, False, id="gitlab with one more"),
    ],
)
def test_a_signature_is_read_as_its_sender_writes_it(
    sender: Sender, headers: dict[str, str], believed: bool
) -> None:
    assert is_signed(sender, tuple(headers.items()), BODY, [TOKEN]) is believed


def test_a_gitlab_token_may_have_any_letters() -> None:
    token = "schlüssel-ж".encode()
    assert is_signed("gitlab", (("x-gitlab-token", token.decode("latin-1")),), BODY, [token])


@settings(max_examples=60)
@given(
    st.sampled_from(SENDERS),
    st.lists(
        st.tuples(
            st.sampled_from(["x-signature", "x-hub-signature-256", "x-gitea-signature", "x-gitlab-token"]),
            st.text(max_size=80) | st.just("sha256=") | st.just("sha256=" + "0" * 64),
        ),
        max_size=4,
    ),
    st.binary(max_size=60),
)
def test_forged_fields_are_ignored(sender: Sender, headers: list[tuple[str, str]], body: bytes) -> None:
    assert not is_signed(sender, tuple(headers), body, [TOKEN, OLD])
