"""Which namespaces let FlagAlerts of others report on their objects. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from controller.api import flagalert
from controller.api.flaggrant import FlagGrantSpec
from controller.api.objects.fields import InvalidSpecError
from controller.api.objects.parsed_spec import parse_spec
from controller.delivery.grants import group_of
from controller.delivery.object_bounds import GRANTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from controller.api.objects.meta import Resource

T = TypeVar("T")
_Granted: TypeAlias = tuple[str, str, str | None]
"""Group, kind and name of an object that may be referred to; None: any name."""


class AlertGrants:
    """Each FlagGrant is parsed when it changes, and a look-up costs the same however many there are."""

    def __init__(self) -> None:
        self._counted: dict[str, list[Resource]] = {}
        """By namespace, the grants within its bound."""
        self._by_owner: dict[str, dict[str, Counter[_Granted]]] = {}
        """By the namespace of the objects, and the namespace of the alerts."""
        self._owners: dict[str, Counter[str]] = {}
        """The namespaces of objects, by the namespace of the alerts."""

    def select(self, namespace: str, grants: Iterable[Resource]) -> None:
        """Count the FlagGrants of a namespace, all of which are given, within its bound."""
        before, after = self._counted.pop(namespace, []), GRANTS.oldest(grants)
        known, present = set(map(id, before)), set(map(id, after))
        for resource in before:
            if id(resource) not in present:
                self._count(resource, -1)
        for resource in after:
            if id(resource) not in known:
                self._count(resource, 1)
        if after:
            self._counted[namespace] = after

    def lets_in(self, namespace: str, alerts_of: str, kind: str, name: str) -> bool:
        """Whether alerts of the namespace `alerts_of` may report on this object of `namespace`."""
        granted = self._by_owner.get(namespace, {}).get(alerts_of)
        if granted is None:
            return False
        group = group_of(kind)
        return granted[(group, kind, name)] > 0 or granted[(group, kind, None)] > 0

    def alert_namespaces(self, namespace: str) -> Collection[str]:
        """Return the other namespaces whose alerts may report on objects of this one."""
        return self._by_owner.get(namespace, {}).keys()

    def object_namespaces(self, namespace: str) -> Collection[str]:
        """Return the other namespaces on whose objects alerts of this one may report."""
        return self._owners.get(namespace, {}).keys()

    def _count(self, resource: Resource, number: int) -> None:
        try:
            spec = parse_spec(FlagGrantSpec, resource)
        except InvalidSpecError:
            # What cannot be read grants nothing.
            return
        granted = [(to.group, to.kind, to.name) for to in spec.to]
        for namespace in {from_.namespace for from_ in spec.from_ if from_.kind == flagalert.KIND}:
            counts = self._by_owner.setdefault(resource.namespace, {}).setdefault(namespace, Counter())
            owners = self._owners.setdefault(namespace, Counter())
            for item in granted:
                _add(counts, item, number)
            _add(owners, resource.namespace, number)
            if not counts:
                del self._by_owner[resource.namespace][namespace]
            if not owners:
                del self._owners[namespace]


def _add(counts: Counter[T], key: T, number: int) -> None:
    counts[key] += number
    if not counts[key]:
        del counts[key]
