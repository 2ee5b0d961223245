"""The API server is no host of sources, artifacts or providers, however it is named."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.fields import read
from controller.api.flagsource import FlagSourceSpec
from controller.api.meta import ObjectKey
from controller.runtime.limits import UNLIMITED
from controller.runtime.setbacks import Stalled
from controller.settings import ControllerSettings
from controller.sources.freshness import Freshness
from controller.sources.provider import Look
from controller.wiring.hosts import artifact_hosts_of, source_hosts_of
from controller.wiring.providers import providers_of

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 23, tzinfo=UTC)
LOOK = Look(ObjectKey("FlagSource", "shop", "flags"), 30, Freshness(NOW, NOW))
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


@pytest.mark.parametrize("hosts_of", [source_hosts_of, artifact_hosts_of])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_beside_a_developer_s_api_server_others_may_be_asked(hosts_of: Any, host: str) -> None:
    settings = ControllerSettings(denied_source_hosts=(), denied_artifact_hosts=())
    judged = hosts_of(settings, f"https://{host}:6443")
    assert await judged.addresses("127.0.0.1", 3000) == ("127.0.0.1",)
