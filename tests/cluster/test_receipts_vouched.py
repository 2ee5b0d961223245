"""A pod whose token says who it is, counted through what befalls tokens and certificates: with a real
evaluator, on a real API server.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from tests.cluster.fleets import followed_source, wait, wait_served
from tests.cluster.patience import within
from tests.cluster.pods import pods
from tests.cluster.proxies import proxy
from tests.worlds.flags import flags
from tests.worlds.objects import secret

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.spines import Spine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

POD = "checkout-1"


@dataclass(frozen=True)
class Vouched:
    """One evaluator, the folder with its token and its proxy's certificate, and who signs that."""

    spine: Spine
    folder: Path
    authority: trustme.CA
    port: int = 0

    def rotate(self, kind: str = "Pod", name: str = POD) -> None:
        """Another token, as the kubelet replaces it; bound to the Pod where nothing else is said."""
        fresh, space = self.folder / "token.new", self.spine
        fresh.write_text(space.api.token(space.name, "default", "flagstaff-proxy", kind=kind, name=name))
        fresh.replace(self.folder / "token")

    def void(self) -> None:
        """A token that was good once."""
        self.spine.apply(secret("anchor"))
        self.rotate("Secret", "anchor")
        self.spine.delete("secret", "anchor")

    def issue(self) -> None:
        """Another certificate for the proxy."""
        issued = self.authority.issue_cert("127.0.0.1")
        (self.folder / "tls.key").write_bytes(issued.private_key_pem.bytes())
        (self.folder / "tls.crt").write_bytes(issued.cert_chain_pems[0].bytes())

    def shows_certificate(self) -> bool:
        """Whether the proxy shows the certificate that was issued last."""
        found = ssl.get_server_certificate(("127.0.0.1", self.port))
        return found.strip() == (self.folder / "tls.crt").read_text().strip()

    def wait_counted(self, claimed: int) -> None:
        """It is one member, which serves what a new commit says, and is a claim or is not."""
        now = self.spine.served_variants()["banner"]
        commit = self.spine.push(flags__json=flags(banner="off" if now == "on" else "on"))
        assert wait(self.spine, "flagset/flags", commit)[0] == 0
        assert wait_served(self.spine, "1/1")["status"]["total"] == 1
        within(lambda: self._claims() == [claimed])

    def _claims(self) -> list[int]:
        return [each["status"]["claimed"] for each in self.spine.all("flagreceipt")]


@pytest.fixture
def vouched(spine: Spine, tmp_path: Path) -> Iterator[Vouched]:
    made = Vouched(spine, tmp_path, trustme.CA())
    made.issue()
    made.authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    files = ("--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key"))
    with proxy(spine.plane, tmp_path / "proxy", *files) as delivering:
        source: dict[str, Any] = followed_source(delivering.target, spine.name)
        source |= {
            "tls": True,
            "certPath": str(tmp_path / "ca.crt"),
            "bearerTokenFile": str(tmp_path / "token"),
        }
        with pods(spine.plane, spine.name, source, tmp_path / "pods", POD):
            made.rotate()
            wait_served(spine, "1/1")
            yield replace(made, port=delivering.sync)


def test_a_token_that_is_replaced_leaves_its_pod_counted_and_vouched_for(vouched: Vouched) -> None:
    vouched.wait_counted(claimed=0)
    vouched.rotate()
    vouched.wait_counted(claimed=0)


def test_a_token_that_is_void_makes_a_claim_of_its_pod_and_a_good_one_ends_that(vouched: Vouched) -> None:
    vouched.wait_counted(claimed=0)
    vouched.void()
    vouched.wait_counted(claimed=1)
    vouched.rotate()
    vouched.wait_counted(claimed=0)


def test_a_certificate_that_is_replaced_costs_no_member(vouched: Vouched) -> None:
    vouched.wait_counted(claimed=0)
    vouched.issue()
    within(vouched.shows_certificate)
    vouched.wait_counted(claimed=0)
