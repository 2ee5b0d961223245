"""References to objects of another namespace, which a FlagGrant there must permit. Pure."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.api import flagalert, flaggrant, flagset
from controller.api.fields import InvalidSpecError, parse_spec
from controller.api.flaggrant import FlagGrantSpec, GrantTo
from controller.api.meta import API_VERSION, GROUP, Resource
from controller.api.records import GRANTED
from controller.delivery.object_bounds import GRANTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from controller.runtime.cache import Cache, Change

_GROUPS: Final = {each.kind: each.group for each in GRANTED}
"""The API group of each kind that may be referred to."""


def group_of(kind: str) -> str:
    """Return the API group of a kind that may be referred to."""
    return _GROUPS[kind]


class Referring(NamedTuple):
    """Objects of one kind in one namespace, which refer to others."""

    kind: str
    namespace: str

    @property
    def group(self) -> str:
        """The API group of the kind."""
        return GROUP if self.kind in {flagset.KIND, flagalert.KIND} else ""


def pods(namespace: str) -> Referring:
    """Return the pods of a namespace that are injected or belong to a Flagd."""
    return Referring("Pod", namespace)


def granted_kinds(
    grants: Iterable[Resource], who: Referring, name: str, kinds: Collection[str]
) -> tuple[str, ...]:
    """Return those of `kinds` as which `name` may be referred to, by the `grants` of its namespace:
    the oldest within the bound.
    """
    targets: list[GrantTo] = []
    for grant_ in GRANTS.oldest(grants):
        # What cannot be read grants nothing.
        with contextlib.suppress(InvalidSpecError):
            spec = parse_spec(FlagGrantSpec, grant_)
            if any(
                (referrer.group, referrer.kind, referrer.namespace) == (who.group, *who)
                for referrer in spec.from_
            ):
                targets += [target for target in spec.to if target.name in {None, name}]
    allowed = {(target.group, target.kind) for target in targets}
    return tuple(kind for kind in kinds if (_GROUPS[kind], kind) in allowed)


def changed_grants(cache: Cache, change: Change) -> Iterator[Resource]:
    """Yield the FlagGrants that may count since a change of one, or no longer: also those at the edge of the
    bound of its namespace.
    """
    key = change.latest.key
    at_edge = map(cache.get, GRANTS.edge(cache.of_kind(key.kind, key.namespace)))
    yield from filter(None, (change.before, change.after, *at_edge))


def denial_message(who: Referring, namespace: str, name: str, kinds: Sequence[str]) -> str:
    """The message where no grant permits it, with the grant to write."""
    written = f"{who.kind if who.group else who.kind.lower()}s"
    return (
        f"{kinds[0]} {name} is in namespace {namespace}, where no FlagGrant lets {written} "
        f"of {who.namespace} refer to it; the owner of that namespace may apply: "
        f"{_grant(who, namespace, name, kinds)}"
    )


def _grant(who: Referring, namespace: str, name: str, kinds: Sequence[str]) -> str:
    """Return a FlagGrant as YAML on one line."""
    called = f"{who.namespace}-{kinds[0].lower()}-{name}"[:253].rstrip(".-")
    to = ", ".join(f"{{group: {_GROUPS[kind]}, kind: {kind}, name: {name}}}" for kind in kinds)
    group = who.group or '""'
    return (
        f"{{apiVersion: {API_VERSION}, kind: {flaggrant.KIND}, "
        f"metadata: {{name: {called}, namespace: {namespace}}}, "
        f"spec: {{from: [{{group: {group}, kind: {who.kind}, namespace: {who.namespace}}}], to: [{to}]}}}}"
    )
