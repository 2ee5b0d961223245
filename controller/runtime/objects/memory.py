"""A cluster in memory: a cache without other writers. Local mode runs the reconcilers over it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from controller.api.objects.meta import ObjectKey, Resource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from controller.runtime.objects.cache import Cache


async def _nothing(_: Resource) -> None:
    """The default observer of what is applied: it does nothing."""


class MemoryCluster:
    """Implements `Applier` and `StatusWriter`. It has no conflicts or Leases, and
    keeps uid, generation and resourceVersion only as far as cache and loop need them.
    """

    def __init__(self, objects: Cache, applied: Callable[[Resource], Awaitable[None]] = _nothing) -> None:
        """`applied` is awaited after each apply, with the object as it is then."""
        self.objects = objects
        self._applied = applied
        self._version = 0

    def put(self, body: Mapping[str, Any]) -> Resource:
        """Write metadata and spec, as a user does; the status stays."""
        written = Resource.of(body)
        known = self.objects.get(written.key)
        version = self._next()
        if known is None:
            resource = replace(written, uid=written.uid or version, generation=1, resource_version=version)
        else:
            generation = known.generation + (known.spec != written.spec)
            resource = replace(
                written, uid=known.uid, generation=generation, resource_version=version, status=known.status
            )
        # Nothing comes late from the only writer; and an object that was gone may return with its uid.
        self.objects.put(resource)
        return resource

    async def apply(self, manifest: Mapping[str, Any], *, manager: str) -> tuple[dict[str, Any], str]:
        """Make `manifest` the object. There are no other writers, so nothing conflicts."""
        written = {**manifest["metadata"], "managedFields": [{"manager": manager}]}
        resource = self.put({**manifest, "metadata": written})
        await self._applied(resource)
        metadata = {
            **written,
            "uid": resource.uid,
            "generation": resource.generation,
            "resourceVersion": resource.resource_version,
        }
        return {**manifest, "metadata": metadata, "status": resource.status}, ""

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, *, uid: str = "", version: str = ""
    ) -> None:
        """Forget an object, if it is there and, where `uid` is given, still that one."""
        del api_version, version
        known = self.objects.get(ObjectKey(kind, namespace, name))
        if known is not None and uid in {"", known.uid}:
            self.objects.forget(known.key)

    async def write_status(self, resource: Resource, status: Mapping[str, Any]) -> Resource | None:
        """Make `status` the object's, and return it as it is now; None if it is gone."""
        known = self.objects.get(resource.key)
        if known is None or known.uid != resource.uid:
            return None
        written = replace(known, status=status, resource_version=self._next())
        self.objects.put(written)
        return written

    def _next(self) -> str:
        self._version += 1
        return str(self._version)


def manifest_of(resource: Resource) -> dict[str, Any]:
    """Return the object without fields that only one run knows, so that another run may apply it."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.key.kind,
        "metadata": {
            "name": resource.name,
            "namespace": resource.namespace,
            "labels": dict(resource.labels),
            "annotations": dict(resource.annotations),
            "ownerReferences": [dict(owner) for owner in resource.owners],
        },
        "spec": dict(resource.spec),
    }
