"""Finds objects that wait for each other in a cycle. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.api.objects.meta import ObjectKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from controller.api.objects.meta import Resource
    from controller.runtime.objects.cache import Cache


def cycle(start: Resource, objects: Cache, awaited: Callable[[Resource], Iterable[str]]) -> list[str]:
    """Return the names of a cycle through `start`, which is at both ends, or nothing. `awaited`: the names of
    the objects of the same kind and namespace that one waits for.
    """
    trails: list[list[str]] = [[start.name]]
    seen: set[str] = set()
    while trails:
        trail = trails.pop()
        last = trail[-1]
        resource = objects.get(ObjectKey(start.key.kind, start.namespace, last)) if len(trail) > 1 else start
        for name in awaited(resource) if resource is not None else ():
            if name == start.name:
                return [*trail, name]
            if name not in seen:
                seen.add(name)
                trails.append([*trail, name])
    return []
