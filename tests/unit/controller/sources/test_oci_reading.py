"""Texts of people and of registries: what is understood, and that nothing but a Setback comes of them."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.addresses import parse_address
from controller.api.meta import COMMITTED_AT
from controller.api.parsing import InvalidTextError
from controller.api.source_spec import OciReference
from controller.local.registries import parse_target
from controller.runtime.setbacks import Setback, Stalled
from controller.sources.oci_manifest import chosen_manifest, read_manifest
from controller.sources.oci_registry import RegistryLogin, challenges_of, login_from

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("text", "host", "repository", "target"),
    [
        ("oci://ghcr.io/team/flags:v1.0", "ghcr.io", "team/flags", OciReference(tag="v1.0")),
        ("oci://localhost:5000/flags", "localhost:5000", "flags", OciReference()),
        (f"oci://[::1]:5000/a/b__c@{DIGEST}", "[::1]:5000", "a/b__c", OciReference(digest=DIGEST)),
        (f"oci://Registry.Example.com/flags:prod@{DIGEST}", "registry.example.com", "flags",
         OciReference(tag="prod", digest=DIGEST)),
        ("oci://my_registry:5000/flags", "my_registry:5000", "flags", OciReference()),
    ],
)  # fmt: skip
def test_an_address_is_a_host_a_repository_and_what_of_it(
    text: str, host: str, repository: str, target: OciReference
) -> None:
    address, found = parse_target(text)
    assert (address.host, address.repository, found) == (host, repository, target)
    assert address.origin == f"https://{host}"


@pytest.mark.parametrize(
    "text",
    [
        "https://ghcr.io/flags", "oci://", "oci:///flags", "oci://ghcr.io", "oci://ghcr.io/",
        "oci://ghcr.io/Flags", "oci://ada:word@ghcr.io/flags", "oci://ghcr.io/a//b", "oci://ghcr.io/../flags",
        "oci://ghcr.io/flags:", "oci://ghcr.io/flags:-v", "oci://ghcr.io/flags@sha256:12",
        "oci://ghcr.io:99999/flags", "oci://a b/flags", "oci://ghcr.io/flags?x=1", "oci://-ghcr.io/flags",
        "oci://[::1/flags", "oci://xn--a/flags",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(Stalled) as raised:
        parse_target(text)
    assert raised.value.reason in {"URLInvalid", "InvalidReference"}
    assert "word" not in str(raised.value)


def test_a_tag_belongs_into_the_reference() -> None:
    with pytest.raises(InvalidTextError, match="belongs into ref"):
        parse_address("oci://ghcr.io/flags:v1")


def configuration(**auths: dict[str, str]) -> bytes:
    return json.dumps({"auths": auths}).encode()


ENCODED = {"auth": base64.b64encode(b"ada:correct:horse").decode()}


@pytest.mark.parametrize(
    ("content", "url"),
    [
        (configuration(**{"ghcr.io": ENCODED}), "oci://ghcr.io/team/flags"),
        (configuration(**{"https://ghcr.io/v2/": ENCODED}), "oci://ghcr.io/team/flags"),
        (configuration(**{"ghcr.io": {"auth": "bm8="}, "ghcr.io/team": ENCODED}), "oci://ghcr.io/team/flags"),
        (configuration(**{"https://index.docker.io/v1/": ENCODED}), "oci://docker.io/team/flags"),
        (
            configuration(**{"localhost:5000": {"username": "ada", "password": "correct:horse"}}),
            "oci://localhost:5000/a",
        ),
    ],
)
def test_a_login_is_found_by_its_host_and_the_beginning_of_a_repository(content: bytes, url: str) -> None:
    assert login_from("it", content, parse_address(url)) == RegistryLogin("ada", "correct:horse")


@pytest.mark.parametrize(
    "content",
    [b"{}", configuration(), configuration(**{"ghcr.io": {}}), configuration(**{"quay.io": ENCODED})],
)
def test_a_host_that_is_not_there_has_no_login(content: bytes) -> None:
    assert login_from("it", content, parse_address("oci://ghcr.io/flags")) is None


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b'{"auths": [1]}', b"[" * 100_000,
        configuration(**{"ghcr.io": {"auth": "no base 64"}}),
        configuration(**{"ghcr.io": {"auth": base64.b64encode(b"token").decode()}}),
        configuration(**{"ghcr.io": {"username": "ada", "password": "two\nlines"}}),
        configuration(**{"ghcr.io": {"identitytoken": "secret-token"}}),
    ],
)  # fmt: skip
def test_an_invalid_configuration_is_reported_without_its_content(content: bytes) -> None:
    with pytest.raises(Stalled, match=r"^it: ") as raised:
        login_from("it", content, parse_address("oci://ghcr.io/flags"))
    assert not any(word in raised.value.message for word in ("two", "secret-token", "base 64"))


def test_logins_are_never_printed() -> None:
    assert "horse" not in repr(RegistryLogin("ada", "horse"))


def test_challenges_are_read_as_registries_write_them() -> None:
    header = (
        'Bearer realm="https://auth.example.com/token?a=1,2",service="reg \\"x\\"", scope=pull, Basic realm=x'
    )
    found = challenges_of([header, "Negotiate"])
    expected = {"realm": "https://auth.example.com/token?a=1,2", "service": 'reg "x"', "scope": "pull"}
    assert found["bearer"] == expected
    assert {"basic", "negotiate"} <= found.keys()
    assert challenges_of(["Bearer"]) == {"bearer": {}}


@pytest.mark.parametrize(
    ("created", "expected"),
    [
        ("2026-11-23T04:00:00.5+02:00", "2026-11-23T02:00:00.500000+00:00"),
        ("2026-11-23T04:00:00", None),
        ("yesterday", None),
        ("0001-01-01T00:00:00+14:00", None),
    ],
)
@pytest.mark.usefixtures("in_tokyo")
def test_a_time_is_given_in_utc_or_not_at_all(created: str, expected: str | None) -> None:
    layers = [{"mediaType": "a", "digest": DIGEST, "size": 1}]
    annotations = {"org.opencontainers.image.created": created}
    manifest = read_manifest(json.dumps({"layers": layers, "annotations": annotations}).encode())
    assert manifest.metadata.get(COMMITTED_AT) == expected


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "auths", "ghcr.io", "auth", "username", "layers", "manifests", "platform", "annotations",
                    "digest", "size", "mediaType",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.text(max_size=60), JSON, st.binary(max_size=60))
def test_whatever_is_read_a_setback_is_all_that_comes_of_it(text: str, value: Any, raw: bytes) -> None:
    with contextlib.suppress(Stalled):
        parse_target(f"oci://{text}")
    challenges_of([text])
    for content in (json.dumps(value).encode(), raw):
        with contextlib.suppress(Setback):
            login_from("it", content, parse_address("oci://ghcr.io/flags"))
        with contextlib.suppress(Setback):
            chosen_manifest(content)
        with contextlib.suppress(Setback):
            _ = read_manifest(content).metadata
