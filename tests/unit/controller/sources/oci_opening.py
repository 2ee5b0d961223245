"""Sources as a FlagSource's spec describes them."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from controller.api.fields import read
from controller.api.flagsource import FlagSourceSpec
from controller.api.meta import ObjectKey
from controller.runtime.setbacks import stall_on_invalid_text
from controller.sources.backend import FetchRequest
from controller.sources.freshness import Freshness
from controller.sources.oci_backend import OciFactory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from controller.runtime.hosts import Hosts
    from controller.sources.oci_backend import OciBackend

NOW = datetime(2026, 11, 23, tzinfo=UTC)


class Opener:
    """Opens sources of one namespace, whose Secrets it has; as the controller does, one factory for all."""

    def __init__(self, secrets: Mapping[str, dict[str, bytes]], hosts: Hosts | None = None) -> None:
        self.secrets = dict(secrets)
        self.factory = OciFactory(self._secret, hosts=hosts)

    async def _secret(self, namespace: str, name: str, account: str | None) -> Mapping[str, bytes] | None:
        return self.secrets.get(name)

    async def open(self, url: str, **oci: Any) -> OciBackend:
        """`seconds` is how long a look may take, `signers` the Secret with keys, `verify` is `spec.verify`;
        the rest `spec.oci`.
        """
        seconds = oci.pop("seconds", 60.0)
        signers = oci.pop("signers", None)
        verify = {"secretRef": {"name": signers}} if signers else oci.pop("verify", None)
        with stall_on_invalid_text():
            spec = read(
                FlagSourceSpec,
                {"interval": "1m", "oci": {"url": url, "insecure": True, **oci}, "verify": verify},
            )
        assert spec.oci is not None
        look = FetchRequest(
            ObjectKey("FlagSource", "shop", "flags"), seconds, Freshness(NOW, NOW), verify=spec.verify
        )
        return await self.factory.open(spec.oci, look)


@contextlib.asynccontextmanager
async def confined_opener(hosts: Hosts) -> AsyncIterator[Opener]:
    """Of sources that may be on some hosts alone."""
    made = Opener({}, hosts)
    try:
        yield made
    finally:
        await made.factory.close()


@contextlib.asynccontextmanager
async def opener(**secrets: dict[str, bytes]) -> AsyncIterator[Opener]:
    made = Opener(secrets)
    try:
        yield made
    finally:
        await made.factory.close()


def read_files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()
    }
