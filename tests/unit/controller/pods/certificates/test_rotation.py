"""One replica's part in keeping certificates, beside others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from controller.pods.admission.webhooks import ServedCertificate
from controller.pods.certificates import rotation as module
from controller.pods.certificates.renewal import LEFT, LIFE, certificates_of, renewed
from controller.pods.certificates.rotation import ABSENT, KEPT, SERVING, STARTING, CertificateRotation
from controller.runtime.reconciling.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NOW = datetime(2026, 11, 23, tzinfo=UTC)
NAMES = ("localhost",)


class Secret:
    """What all replicas see."""

    def __init__(self, data: Mapping[str, bytes] | None) -> None:
        self.data = data
        self.now = NOW
        self.trusted: list[bytes] = []
        self.writes = 0
        self.failing = ""
        self.faster: Mapping[str, bytes] | None = None
        """What somebody else writes before us."""

    async def read(self) -> Mapping[str, bytes] | None:
        if self.failing:
            raise Failed("AccessDenied", self.failing)
        return self.data

    async def write(self, data: Mapping[str, bytes]) -> bool:
        if self.faster is not None:
            self.data, self.faster = self.faster, None
            return False
        self.data = data
        self.writes += 1
        return True

    async def trust(self, authorities: bytes) -> None:
        self.trusted.append(authorities)


class Replica:
    """A keeper and its port."""

    def __init__(self, secret: Secret, folder: Path, *, leading: bool = True) -> None:
        self.file = folder / "server.pem"
        self.served = ServedCertificate(folder, renewed(None, NAMES, NOW))
        self.keeper = CertificateRotation("admission", secret, NAMES, lambda: leading, self.served.replace)

    async def look(self) -> str:
        await self.keeper.look()
        return self.keeper.state


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK", 0.0)


@pytest.fixture
def secret() -> Secret:
    return Secret({})


async def test_an_empty_secret_is_filled_served_and_trusted(secret: Secret, tmp_path: Path) -> None:
    replica = Replica(secret, tmp_path)
    assert replica.keeper.state == STARTING
    context, first = replica.served.tls.context, replica.file.read_bytes()
    assert await replica.look() == SERVING
    kept = certificates_of(secret.data or {})
    assert kept is not None
    assert replica.file.read_bytes() == kept.certificate + kept.key != first
    assert replica.served.tls.context is not context
    assert secret.trusted == [kept.authorities]
    assert (replica.file.stat().st_mode & 0o777) == 0o600


async def test_at_rest_nothing_is_written(secret: Secret, tmp_path: Path) -> None:
    replica = Replica(secret, tmp_path)
    await replica.look()
    at = replica.file.stat().st_mtime_ns
    assert [await replica.look(), await replica.look()] == [SERVING, SERVING]
    assert (secret.writes, replica.file.stat().st_mtime_ns) == (1, at)


async def test_a_standby_serves_the_same_and_leaves_trust_to_the_leader(
    secret: Secret, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    leader, standby = Replica(secret, tmp_path / "a"), Replica(secret, tmp_path / "b", leading=False)
    await leader.look()
    assert await standby.look() == SERVING
    assert leader.file.read_bytes() == standby.file.read_bytes()
    assert (secret.writes, len(secret.trusted)) == (1, 1)


async def test_the_certificate_of_the_faster_replica_is_used(secret: Secret, tmp_path: Path) -> None:
    other = Secret({})
    (tmp_path / "other").mkdir()
    await Replica(other, tmp_path / "other").look()
    secret.faster = other.data
    replica = Replica(secret, tmp_path)
    assert [await replica.look(), await replica.look()] == [STARTING, SERVING]
    assert (secret.data, secret.writes) == (other.data, 0)


async def test_a_certificate_is_renewed_in_time(secret: Secret, tmp_path: Path) -> None:
    replica = Replica(secret, tmp_path)
    await replica.look()
    before = replica.file.read_bytes()
    secret.now += LIFE - LEFT + timedelta(minutes=1)
    await replica.look()
    assert replica.file.read_bytes() != before
    assert secret.trusted[0] == secret.trusted[1]


async def test_without_a_secret_admission_is_not_installed(tmp_path: Path) -> None:
    secret = Secret(None)
    replica = Replica(secret, tmp_path)
    assert await replica.look() == ABSENT
    secret.data = {}
    assert await replica.look() == SERVING


async def test_what_was_served_stays_so_while_nothing_can_be_read(secret: Secret, tmp_path: Path) -> None:
    replica = Replica(secret, tmp_path)
    secret.failing = "Secret flagstaff-admission: forbidden"
    assert await replica.look() == secret.failing
    secret.failing = ""
    assert await replica.look() == SERVING
    secret.failing = "the API server is gone"
    assert await replica.look() == SERVING


async def test_certificates_that_somebody_else_serves_are_kept_renewed_and_trusted(secret: Secret) -> None:
    keeper = CertificateRotation("the proxy", secret, NAMES, lambda: True)
    await keeper.look()
    first = certificates_of(secret.data or {})
    assert first is not None
    assert (keeper.state, secret.trusted) == (KEPT, [first.authorities])
    secret.now += LIFE - LEFT + timedelta(minutes=1)
    await keeper.look()
    renewal = certificates_of(secret.data or {})
    assert renewal is not None
    assert (renewal.authorities, secret.writes) == (first.authorities, 2)
    assert renewal.certificate != first.certificate


async def test_a_failure_to_store_is_reported_once_and_again_after_a_success(
    secret: Secret, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = CertificateRotation("the proxy", secret, NAMES, lambda: True)
    for failing in ("forbidden", "forbidden", "", "forbidden"):
        secret.failing = failing
        await keeper.look()
    assert caplog.text.count("certificates of the proxy cannot be kept: forbidden") == 2
