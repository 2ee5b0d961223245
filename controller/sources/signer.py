"""Adds the signer of what was fetched to its metadata. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from controller.api.provenance import VERIFIED_BY

if TYPE_CHECKING:
    from controller.sources.provider import Fetched
    from controller.sources.verification.signer import Signer


def with_signer(fetched: Fetched, signer: Signer | None, *, named: bool) -> Fetched:
    """`fetched` with its signer; `named`: with the signer's name, too, and not the key alone."""
    if signer is None:
        return fetched
    shown = str(signer) if named else signer.key
    summary = ", ".join(each for each in (fetched.summary, f"signed by {shown}") if each)
    return replace(fetched, metadata={**fetched.metadata, VERIFIED_BY: shown}, summary=summary)
