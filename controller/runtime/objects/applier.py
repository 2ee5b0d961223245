"""The port by which a stage writes its objects to the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class Applier(Protocol):
    """Applies and deletes objects."""

    async def apply(self, manifest: Mapping[str, Any], *, manager: str) -> tuple[dict[str, Any], str]:
        """Apply `manifest` as field manager `manager`. Returns (object, managers whose manual
        changes it overwrote). Raises Setback: Passing (ChangedMeanwhile) for a manifest `at_version` whose
        object is at another.
        """

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, *, uid: str = "", version: str = ""
    ) -> None:
        """Delete an object, if it is there and, where `uid` is given, still that one. Raises Setback: Passing
        (ChangedMeanwhile) where it is not at the `version` that is given.
        """


def at_version(manifest: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    """Return the manifest with the version of the object that it was decided on; empty: there is none. A
    leader that was paused would overwrite what its successor wrote.
    """
    if not version:
        return manifest
    return {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": version}}
