"""The API server is no host of sources, artifacts or providers, however it is named."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from controller.api import flagsource
from controller.api.fields import read
from controller.api.flagsource import FlagSourceSpec
from controller.api.meta import ObjectKey
from controller.app.namespace_limits import (
    artifact_hosts_of,
    provider_hosts_of,
    rollout_hosts_of,
    source_hosts_of,
)
from controller.app.reconcilers import providers_of
from controller.app.settings import ControllerSettings
from controller.events.notice import Post
from controller.events.senders import MailSender
from controller.runtime.hosts import Hosts
from controller.runtime.http_client import Route
from controller.runtime.limits import UNLIMITED
from controller.runtime.setbacks import Stalled
from controller.sources.backend import FetchRequest
from controller.sources.freshness import Freshness
from tests.worlds.events import http_sender
from tests.worlds.metrics import metric_world

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 23, tzinfo=UTC)
LOOK = FetchRequest(ObjectKey("FlagSource", "shop", "flags"), 30, Freshness(NOW, NOW))
SERVER = "https://192.0.2.1:6443"
OF_THE_POD = "192.0.2.2"
ASKED = {
    "git": {"url": "https://192.0.2.1:6443/flags.git"},
    "oci": {"url": "oci://192.0.2.1:6443/flags"},
    "bucket": {"bucketName": "flags", "endpoint": "https://192.0.2.1:6443"},
}


@pytest.fixture(autouse=True)
def _in_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", OF_THE_POD)


def test_every_backend_is_asked() -> None:
    assert ASKED.keys() == set(flagsource.PROVIDERS)


@pytest.mark.parametrize("host", ["192.0.2.1:6443", OF_THE_POD, "kubernetes.default.svc"])
@pytest.mark.parametrize("field", ASKED)
async def test_no_source_is_on_the_api_server(field: str, host: str, tmp_path: Path) -> None:
    async def no_secret(namespace: str, name: str, account: str | None) -> None:
        return None

    asked = {name: text.replace("192.0.2.1:6443", host) for name, text in ASKED[field].items()}
    spec = read(FlagSourceSpec, {"interval": "1m", field: asked})
    settings = ControllerSettings(
        storage_path=tmp_path, source_hosts=("*", "0.0.0.0/0"), denied_source_hosts=()
    )
    providers = providers_of(settings, UNLIMITED, no_secret, SERVER)
    try:
        with pytest.raises(Stalled, match="is the API server's") as refused:
            await (await providers[field].open(getattr(spec, field), LOOK)).resolve()
    finally:
        for each in providers.values():
            await each.close()
    assert refused.value.reason == "HostDenied"


@pytest.mark.parametrize(
    "hosts_of", [source_hosts_of, artifact_hosts_of, provider_hosts_of, rollout_hosts_of]
)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_beside_a_developer_s_api_server_others_may_be_asked(hosts_of: Any, host: str) -> None:
    settings = ControllerSettings(
        denied_source_hosts=(),
        denied_artifact_hosts=(),
        allow_local_providers=True,
        rollout_hosts=("127.0.0.0/8",),
        denied_rollout_hosts=(),
    )
    judged = hosts_of(settings, f"https://{host}:6443")
    assert await judged.addresses("127.0.0.1", 3000) == ("127.0.0.1",)


@pytest.mark.parametrize("host", ["192.0.2.1", OF_THE_POD, "kubernetes.default.svc"])
@pytest.mark.parametrize("proxy", ["", "http://192.0.2.9:3128"])
async def test_no_provider_is_the_api_server_even_where_private_addresses_are_allowed(
    host: str, proxy: str
) -> None:
    hosts = provider_hosts_of(ControllerSettings(allow_local_providers=True), SERVER)
    async with http_sender(hosts) as sender:
        answer = await sender.send(Post(f"https://{host}/api", b"{}", {}), Route(proxy=proxy, seconds=30.0))
    assert answer.status == 0
    assert answer.text.endswith(f"host {host} is the API server's")


PROVIDERS = Hosts(("*.example.com", "127.0.0.1"), ("evil.example.com",), kind="provider", local=True)


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("evil.example.com", "denied by --denied-provider-hosts"),
        ("127.0.0.2", "host 127.0.0.2 is not one of --provider-hosts"),
    ],
)
async def test_a_provider_has_a_host_of_the_list_by_whichever_protocol(host: str, why: str) -> None:
    mail = MailSender(PROVIDERS)
    async with http_sender(PROVIDERS) as sender:
        answers = [
            await sender.send(Post(f"http://{host}:1/", b"{}", {}), Route(seconds=30.0)),
            await mail.send(Post(f"smtp://{host}:1", b"", {"From": "a@b", "To": "a@b"}), Route(seconds=30.0)),
        ]
    for each in answers:
        assert each.status == 0
        assert why in each.text


NAMED = {"rollout_hosts": ("*.monitoring.svc", "10.1.0.0/16", "127.0.0.1", "192.0.2.0/24")}


@pytest.mark.parametrize(
    ("settings", "address", "words"),
    [
        ({}, "http://93.184.215.14", "it must begin with https://; whoever runs the controller may name it"),
        ({}, "https://10.1.2.3", "10.1.2.3 is not a public address; whoever runs the controller may name it"),
        ({}, "https://127.0.0.1", "127.0.0.1 is not a public address"),
        ({}, "https://[::ffff:10.1.2.3]", "10.1.2.3 is not a public address"),
        (NAMED, "http://10.2.0.1", "is not one of --rollout-hosts"),
        (NAMED, "https://api.datadoghq.com", "host api.datadoghq.com"),
        (NAMED, "http://127.0.0.1:9090", "denied by --denied-rollout-hosts"),
        (NAMED, "http://169.254.169.254", "169.254.169.254 is not a public address"),
        (NAMED, "http://192.0.2.1:6443", "is the API server's"),
        (NAMED, f"http://{OF_THE_POD}", "is the API server's"),
        (NAMED, "http://kubernetes.default.svc", "is the API server's"),
    ],
)
@pytest.mark.parametrize("type_", ["prometheus", "datadog", "http"])
async def test_a_metric_server_inside_the_cluster_is_asked_only_if_it_is_named(
    type_: str, settings: dict[str, Any], address: str, words: str
) -> None:
    chosen = ControllerSettings(**settings)
    allow_local = bool(chosen.rollout_hosts)
    async with metric_world(rollout_hosts_of(chosen, SERVER), allow_local=allow_local) as world:
        world.secrets["datadog"] = {"datadog_api_key": b"a", "datadog_application_key": b"b"}
        provider = {"type": type_, "address": address, "jsonPath": "$", "secretRef": {"name": "datadog"}}
        if type_ != "datadog":
            del provider["secretRef"]
        world.template(provider, "/x")
        status = await world.check(seconds=30.0)
    assert status.verdict == "Error"
    assert words in (status.message or "")
