"""Each mode and kind of key, and what may be wrong with what is signed: what is refused, why, and that what
was accepted last stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.contract.verified_rows import GOOD, OLD, BucketRow, GitRow, KeylessRow, OciRow
from tests.registry.fixtures import registry, shelf
from tests.s3 import s3
from tests.signing import pgp
from tests.sigstore.instance import instance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.registry.fixtures import Shelf
    from tests.signing import Pgp

__all__ = ["registry", "shelf"]


class Refused(NamedTuple):
    """A cell: the reason, and words of the message."""

    reason: str
    message: str


class Accepted(NamedTuple):
    """A cell: what is served then, although it is not as it should be; and why."""

    text: str
    why: str


class Never(NamedTuple):
    """A cell that cannot be."""

    why: str


Cell = Refused | Accepted | Never

_COMMIT: Final = "InvalidCommitSignature"
_TAG: Final = "InvalidTagSignature"
_ARTIFACT: Final = "InvalidArtifactSignature"
_BUCKET: Final = "InvalidBucketSignature"
_PEM: Final = Never("a public key in PEM does not end")


def git(mode: str, kind: str, reason: str, replayed: Refused) -> dict[str, Cell]:
    # An SSH key ends where allowed_signers says so, and is revoked by taking it out of the Secret: for tags,
    # too.
    ends, revoked = (
        "which does not count: key has expired",
        Refused(_TAG if "Tag" in mode else reason, "which is not among"),
    )
    if kind == "PGP":
        ends, revoked = "expired", Refused(reason, "is revoked")
    return {
        "unsigned": Refused(reason, "it is not signed"),
        "wrong_key": Refused(reason, "which is not among"),
        "expired": Refused(reason, ends),
        "revoked": revoked,
        "tampered": Refused(reason, "changed"),
        "replayed": replayed,
        "older": Refused("HistoryRewritten", "is older than"),
    }


_ELSEWHERE: Final = Refused("HistoryRewritten", "does not descend from")
_OTHER_TAG: Final = Refused(_TAG, "it says to be the tag 'v0'")
GIT: Final[dict[tuple[str, str], Mapping[str, Cell]]] = {
    (mode, kind): git(mode, kind, reason, replayed)
    for mode, reason, replayed in (
        ("HEAD", _COMMIT, _ELSEWHERE),
        ("Tag", _TAG, _OTHER_TAG),
        ("TagAndHEAD", _COMMIT, _OTHER_TAG),
        ("EveryCommit", _COMMIT, _ELSEWHERE),
    )
    for kind in ("PGP", "SSH")
}
OCI: Final[Mapping[str, Cell]] = {
    "unsigned": Refused(_ARTIFACT, "it is not signed"),
    "wrong_key": Refused(_ARTIFACT, "by none of the trusted keys"),
    "expired": _PEM,
    "revoked": Refused(_ARTIFACT, "by none of the trusted keys"),
    "tampered": Refused(_ARTIFACT, "by none of the trusted keys"),
    "replayed": Refused(_ARTIFACT, "is of another artifact"),
    "older": Accepted(OLD, "a signature of cosign's by a key does not say when it was made"),
}
KEYLESS: Final[Mapping[str, Cell]] = {
    "unsigned": Refused(_ARTIFACT, "it is not signed"),
    "wrong_key": Refused(_ARTIFACT, "its certificate is for eve@evil.example"),
    "expired": Refused(_ARTIFACT, "not valid at validation time"),
    # An identity is revoked by taking it out of the spec: its certificates count for minutes.
    "revoked": Refused(_ARTIFACT, "its certificate is for"),
    "tampered": Refused(_ARTIFACT, "does not prove who signed"),
    "replayed": Refused(_ARTIFACT, "is of another artifact"),
    "older": Accepted(OLD, "a registry's tag says nothing of which artifact is newer"),
}
BUCKET: Final[Mapping[str, Cell]] = {
    "unsigned": Refused(_BUCKET, "it is not signed"),
    "wrong_key": Refused(_BUCKET, "by none of the trusted keys"),
    "expired": _PEM,
    "revoked": Refused(_BUCKET, "by none of the trusted keys"),
    "tampered": Refused(_BUCKET, "other than what was signed: flags.json"),
    "replayed": Refused(_BUCKET, "other than what was signed: flags.json"),
    "older": Refused("HistoryRewritten", "was signed at"),
}


async def hold(row: GitRow | OciRow | BucketRow, cells: Mapping[str, Cell]) -> None:
    """Go through a row, from the good state again for each cell."""
    row.old()
    assert (await row.look(), row.stored) == ("Succeeded", OLD)
    row.good()
    assert (await row.look(), row.stored) == ("Succeeded", GOOD)
    assert row.condition("SourceVerified")[0] == "True"
    for name, cell in cells.items():
        if isinstance(cell, Never):
            continue
        row.undo()
        getattr(row, name)()
        reason = await row.look()
        if isinstance(cell, Accepted):
            assert (name, reason, row.stored) == (name, "Succeeded", cell.text)
            continue
        assert (name, reason, row.stored) == (name, cell.reason, GOOD)
        assert cell.message in row.condition("Ready")[2], name
        if cell.reason != "HistoryRewritten":
            assert row.condition("SourceVerified")[:2] == ("False", cell.reason)
    await row.close()


@pytest.fixture(scope="module")
def ring() -> Iterator[Pgp]:
    with pgp() as made:
        yield made


@pytest.mark.parametrize(("mode", "kind"), GIT)
async def test_commits_and_tags(tmp_path: Path, mode: str, kind: str, ring: Pgp) -> None:
    await hold(GitRow(tmp_path, mode, kind, ring), GIT[mode, kind])


@pytest.mark.parametrize("form", ["tag", "bundle"])
async def test_artifacts(tmp_path: Path, shelf: Shelf, form: str) -> None:
    await hold(OciRow(tmp_path, form, shelf), OCI)


async def test_artifacts_without_keys(tmp_path: Path, shelf: Shelf) -> None:
    with instance() as sigstore:
        await hold(KeylessRow(tmp_path, shelf, sigstore), KEYLESS)


async def test_buckets(tmp_path: Path) -> None:
    with s3(tmp_path) as store:
        await hold(BucketRow(tmp_path, store), BUCKET)
