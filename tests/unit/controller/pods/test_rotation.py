"""One replica's part in keeping certificates, beside others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from controller.pods.certificates import (
    ABSENT,
    KEPT,
    LEFT,
    LIFE,
    STARTING,
    CertificateRotation,
    certificates_of,
)
from controller.runtime.process import Role
from controller.runtime.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def rotation(secret: Secret, *, leading: bool = True) -> CertificateRotation:
    return CertificateRotation("admission", secret, NAMES, Role(leading), pause=0.0)


async def look(replica: CertificateRotation) -> str:
    await replica.check()
    return replica.state


@pytest.fixture
def secret() -> Secret:
    return Secret({})


async def test_an_empty_secret_is_filled_and_trusted(secret: Secret) -> None:
    replica = rotation(secret)
    assert replica.state == STARTING
    assert await look(replica) == KEPT
    stored = certificates_of(secret.data or {})
    assert stored is not None
    assert secret.trusted == [stored.authorities]


async def test_at_rest_nothing_is_written(secret: Secret) -> None:
    replica = rotation(secret)
    assert [await look(replica) for _ in range(3)] == [KEPT] * 3
    assert secret.writes == 1


async def test_a_standby_keeps_the_secret_and_leaves_trust_to_the_leader(secret: Secret) -> None:
    assert await look(rotation(secret, leading=False)) == KEPT
    assert (secret.writes, secret.trusted) == (1, [])
    assert await look(rotation(secret)) == KEPT
    assert (secret.writes, len(secret.trusted)) == (1, 1)


async def test_the_certificate_of_the_faster_replica_is_kept(secret: Secret) -> None:
    other = Secret({})
    await look(rotation(other))
    secret.faster = other.data
    replica = rotation(secret)
    assert [await look(replica), await look(replica)] == [STARTING, KEPT]
    assert (secret.data, secret.writes) == (other.data, 0)


async def test_a_certificate_is_renewed_in_time_by_the_same_authority(secret: Secret) -> None:
    replica = rotation(secret)
    await look(replica)
    first = certificates_of(secret.data or {})
    secret.now += LIFE - LEFT + timedelta(minutes=1)
    await look(replica)
    renewal = certificates_of(secret.data or {})
    assert first is not None
    assert renewal is not None
    assert renewal.certificate != first.certificate
    assert secret.trusted == [first.authorities, renewal.authorities] == [first.authorities] * 2


async def test_without_a_secret_the_server_is_not_installed() -> None:
    secret = Secret(None)
    replica = rotation(secret)
    assert await look(replica) == ABSENT
    secret.data = {}
    assert await look(replica) == KEPT


async def test_the_state_stays_while_nothing_can_be_read(secret: Secret) -> None:
    replica = rotation(secret)
    secret.failing = "Secret flagstaff-admission: forbidden"
    assert await look(replica) == secret.failing
    secret.failing = ""
    assert await look(replica) == KEPT
    secret.failing = "the API server is gone"
    assert await look(replica) == KEPT


async def test_a_failure_to_store_is_reported_once_and_again_after_a_success(
    secret: Secret, caplog: pytest.LogCaptureFixture
) -> None:
    replica = rotation(secret)
    for failing in ("forbidden", "forbidden", "", "forbidden"):
        secret.failing = failing
        await look(replica)
    assert caplog.text.count("certificates of admission cannot be kept: forbidden") == 2
