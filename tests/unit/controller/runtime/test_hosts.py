"""Hosts are judged by their name and by every address that it has."""

from __future__ import annotations

import pytest

from controller.runtime.hosts import DENIED, Hosts, require_entries
from controller.runtime.setbacks import Failed, Stalled

NAMES = {
    "git.example.com": ("203.0.113.7",),
    "two.example.com": ("203.0.113.7", "169.254.169.254"),
    "inside.svc": ("10.0.0.5",),
    "inside.example.com": ("10.0.0.5",),
    "api.example.com": ("10.96.0.2",),
    "alias.example.com": ("203.0.113.8", "10.96.0.2"),
}


async def resolve(host: str, port: int) -> tuple[str, ...]:
    if host not in NAMES and not host.replace(".", "").replace(":", "").isalnum():
        raise OSError("unknown")
    if host == "nowhere.example.com":
        raise OSError(-2, "Name or service not known")
    return NAMES.get(host, (host,))


def hosts(allowed: tuple[str, ...] = (), denied: tuple[str, ...] = DENIED) -> Hosts:
    return Hosts(allowed, denied, resolve)


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "127.0.0.1",
        "0.0.0.0",  # noqa: S104 - nobody listens there
        "::1",
        "[::1]",
        "fe80::1",
        "::ffff:127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "two.example.com",
    ],
)
async def test_addresses_of_this_machine_and_of_its_cloud_are_denied(host: str) -> None:
    with pytest.raises(Stalled, match="denied by --denied-source-hosts") as refused:
        await hosts().addresses(host, 443)
    assert refused.value.reason == "HostDenied"


async def test_what_was_judged_is_what_is_connected_to() -> None:
    assert await hosts().addresses("GIT.example.com.", 443) == ("203.0.113.7",)


@pytest.mark.parametrize("allowed", ["git.example.com", "*.example.com", "203.0.113.0/24", "203.0.113.7"])
async def test_a_list_allows_by_name_glob_and_network_and_nothing_else(allowed: str) -> None:
    judged = hosts((allowed,))
    assert await judged.addresses("git.example.com", 443)
    with pytest.raises(Stalled, match="not one of --source-hosts"):
        await judged.addresses("inside.svc", 80)


async def test_a_denied_name_is_not_even_looked_up() -> None:
    with pytest.raises(Stalled, match=r"host evil\.test is denied"):
        await hosts(("*",), ("*.test",)).addresses("evil.test", 443)


async def test_a_name_without_an_address_may_have_one_later() -> None:
    with pytest.raises(Failed, match=r"nowhere\.example\.com: Name or service not known"):
        await hosts().addresses("nowhere.example.com", 443)


def test_where_a_proxy_looks_names_up_names_are_judged_alone() -> None:
    hosts().require_name("unknown.example.com")
    hosts(("10.0.0.0/8",)).require_name("10.1.2.3")
    for judged, host in ((hosts(), "127.0.0.1"), (hosts(("*.svc",)), "git.example.com")):
        with pytest.raises(Stalled):
            judged.require_name(host)


@pytest.mark.parametrize(
    "host", ["git.team.svc", "git.team.svc.example.org", "git.cluster.local", "10.1.2.3", "172.31.0.1",
             "192.168.0.1", "fd12::1", "::ffff:10.0.0.1", "inside.example.com"],
)  # fmt: skip
async def test_services_and_private_networks_may_be_denied_whatever_the_list_allows(host: str) -> None:
    judged = Hosts(("*", "10.0.0.0/8"), (), resolve, in_cluster=False)
    with pytest.raises(Stalled, match="denied by --deny-cluster-hosts") as refused:
        await judged.addresses(host, 443)
    assert refused.value.reason == "HostDenied"
    assert await judged.addresses("git.example.com", 443)


async def test_the_api_server_is_denied_by_each_of_its_names_and_addresses() -> None:
    judged = Hosts(("*",), (), resolve, api_server=("10.96.0.1", "api.example.com"))
    for host in ("10.96.0.1", "10.96.0.2", "api.example.com", "alias.example.com", "kubernetes.default.svc"):
        with pytest.raises(Stalled, match="is the API server's") as refused:
            await judged.addresses(host, 443)
        assert refused.value.reason == "HostDenied"
    for host in ("10.96.0.1", "API.example.com.", "kubernetes.default.svc.cluster.local"):
        with pytest.raises(Stalled, match="is the API server's"):
            judged.require_name(host)
    assert await judged.addresses("git.example.com", 443)


def test_an_entry_that_is_no_network_is_refused() -> None:
    assert require_entries(("*.example.com", "10.0.0.0/8")) == ("*.example.com", "10.0.0.0/8")
    with pytest.raises(ValueError, match=r"10\.0\.0\.0/99"):
        require_entries(("10.0.0.0/99",))
