"""Takes objects as the API server sends them into the cache. No I/O."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from controller.api.meta import Resource

if TYPE_CHECKING:
    from controller.api.kinds import ResourceType
    from controller.runtime.objects.cache import Cache

log = logging.getLogger(__name__)


def take(cache: Cache, type_: ResourceType, body: dict[str, Any], *, deleted: bool = False) -> None:
    """Take in an object that is there, or was deleted. A malformed one is logged and changes nothing."""
    try:
        resource = _resource(type_, body)
    except (KeyError, TypeError, AttributeError):
        log.exception("a malformed %s was sent", type_.kind)
        return
    known = cache.get(resource.key)
    if not deleted:
        cache.learn(resource)
    elif known is not None and known.uid == resource.uid:
        cache.forget(resource.key)


def _resource(type_: ResourceType, body: dict[str, Any]) -> Resource:
    kept = {"apiVersion": type_.api_version, "kind": type_.kind, "metadata": body["metadata"]}
    if type_.content:
        kept |= {name: body[name] for name in ("spec", "status") if name in body}
        return Resource.of(kept)
    meta = body["metadata"]
    plain = {name: meta.get(name) for name in ("name", "namespace", "uid", "resourceVersion")}
    return Resource.of({**kept, "metadata": plain})
