"""Which addresses a provider may have, as tables."""

from __future__ import annotations

import pytest

from controller.api.addresses import AddressRefused, require_public, require_usable

PUBLIC = ("8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1")
LOCAL = (
    "127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "::1", "fd00::1", "::ffff:10.0.0.1",
    "64:ff9b::7f00:1", "2002:7f00:1::1", "198.18.0.1",
)  # fmt: skip
NEVER = (
    "169.254.169.254", "fe80::1", "fe80::1%eth0", "0.0.0.0", "::", "224.0.0.1", "ff02::1",  # noqa: S104 - refused
    "::ffff:169.254.169.254", "fd00:ec2::254", "x",
)  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
@pytest.mark.parametrize("local", [True, False])
def test_public_address_is_allowed(address: str, local: bool) -> None:
    require_public(address, allow_local=local)


@pytest.mark.parametrize("address", LOCAL)
def test_private_address_needs_allow_local(address: str) -> None:
    require_public(address, allow_local=True)
    with pytest.raises(AddressRefused, match="not a public address"):
        require_public(address, allow_local=False)


@pytest.mark.parametrize("address", NEVER)
@pytest.mark.parametrize("local", [True, False])
def test_link_local_and_multicast_addresses_are_never_allowed(address: str, local: bool) -> None:
    with pytest.raises(AddressRefused):
        require_public(address, allow_local=local)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://hooks.example.com/x", "must begin with https"),
        ("ftp://hooks.example.com/x", "must be a URL such as"),
        ("hooks.example.com", "must be a URL such as"),
        ("https:///x", "must be a URL such as"),
        ("https://hooks.example.com:0/", "must be a URL such as"),
        ("https://hooks.example.com:70000/", "not a URL"),
        ("https://[::1/", "not a URL"),
        ("https://me:secret@hooks.example.com/", "must not contain a user"),
        ("https://hooks.example.com/a b", "characters"),
        ("https://hooks.example.com/a\r\nb", "characters|not a URL"),
        ("https://127.0.0.1/", "not a public address"),
        ("https://[::1]/", "not a public address"),
        ("https://2130706433/", "not an IP address"),
        ("https://127.1/", "not an IP address"),
    ],
)
def test_forbidden_url_is_refused_without_its_path(address: str, words: str) -> None:
    with pytest.raises(AddressRefused, match=words) as caught:
        require_usable(address, allow_local=False)
    assert "secret" not in str(caught.value)


def test_allowed_url_passes() -> None:
    require_usable("https://hooks.example.com/services/T/B/x?y=z", allow_local=False)
    require_usable("http://127.0.0.1:8099/", allow_local=True)
