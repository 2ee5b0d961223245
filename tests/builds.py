"""Says what the next test run builds first, and for how long: `python -m tests.builds`."""

from __future__ import annotations

from typing import Final

from tests.buckets.google import SERVER
from tests.cluster.assets import KWOK, PLANE
from tests.contract.flagd_core import ENGINE
from tests.contract.grpc_go import CLIENT
from tests.go import Module, find
from tests.helm.program import HELM
from tests.registry.program import CONTAINERS, REGISTRY
from tests.sigstore.program import SIGNER

PROGRAMS: Final = (PLANE, HELM, KWOK, REGISTRY, CONTAINERS, SIGNER, ENGINE, CLIENT, SERVER)


def announcement(missing: list[Module]) -> str:
    """One line for each program that is not in the cache."""
    if not missing:
        return "==> all programs that tests need are built"
    lines = (f"    {module.announcement}" for module in missing)
    return "\n".join(["==> will build, once for all runs:", *lines])


if __name__ == "__main__":
    print(announcement([module for module in PROGRAMS if find(module) is None]), flush=True)
