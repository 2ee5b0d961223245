"""Whether a FlagSet may read a source of another namespace: where a FlagGrant there says so. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.api import grant
from controller.api.fields import InvalidSpecError, read
from controller.api.flagset import KIND, SOURCE_API
from controller.api.grant import FlagGrantSpec
from controller.api.meta import API_VERSION, GROUP
from controller.runtime.setbacks import Stalled

if TYPE_CHECKING:
    from controller.api.meta import ObjectKey, Resource
    from controller.runtime.cache import Cache


def require_grant(reader: str, source: ObjectKey, objects: Cache) -> None:
    """Raises Stalled, with the grant to write, unless FlagSets of the namespace `reader` may refer to
    `source`, be it there or not.
    """
    if reader == source.namespace:
        return
    if any(_allows(each, reader, source) for each in objects.of_kind(grant.KIND, source.namespace)):
        return
    raise Stalled(
        "AccessDenied",
        f"{source.kind} {source.name} is in namespace {source.namespace}, where no FlagGrant lets FlagSets "
        f"of {reader} refer to it; whoever owns that namespace may apply: {_grant(reader, source)}",
    )


def _allows(found: Resource, reader: str, source: ObjectKey) -> bool:
    try:
        spec = read(FlagGrantSpec, found.spec)
    except InvalidSpecError:
        # What cannot be read grants nothing.
        return False
    wanted = (_group(source), source.kind)
    if not any((each.group, each.kind, each.namespace) == (GROUP, KIND, reader) for each in spec.from_):
        return False
    return any((each.group, each.kind) == wanted and each.name in {None, source.name} for each in spec.to)


def _group(source: ObjectKey) -> str:
    return SOURCE_API[source.kind].partition("/")[0]


def _grant(reader: str, source: ObjectKey) -> str:
    """In YAML, on one line."""
    name = f"{reader}-{source.kind.lower()}-{source.name}"[:253].rstrip(".-")
    return (
        f"{{apiVersion: {API_VERSION}, kind: {grant.KIND}, "
        f"metadata: {{name: {name}, namespace: {source.namespace}}}, "
        f"spec: {{from: [{{group: {GROUP}, kind: {KIND}, namespace: {reader}}}], "
        f"to: [{{group: {_group(source)}, kind: {source.kind}, name: {source.name}}}]}}}}"
    )
