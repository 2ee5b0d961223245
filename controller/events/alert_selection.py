"""Selects what FlagAlerts report: which alerts are used, which objects in which namespaces they select, and
which messages. Pure.

A spec is parsed once for each generation, when its object changes. The work for one Event is bounded: a
namespace uses a limited number of alerts, and alerts of other namespaces cost nothing without a FlagGrant.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from controller.api import featureflagconfiguration, flagalert, flaggrant, flagset
from controller.api import flagalert as alerts
from controller.api.fields import InvalidSpecError, parse_spec
from controller.api.flagalert import EVERY, EventSource, FlagAlertSpec, expression, glob_list
from controller.api.flaggrant import FlagGrantSpec
from controller.api.flagprovider import KIND as PROVIDER
from controller.api.flagprovider import SEVERITIES, Message
from controller.api.flagset_status import FlagSetStatus
from controller.api.kinds import NAMESPACE
from controller.api.meta import ObjectKey, Resource
from controller.delivery.grants import group_of
from controller.delivery.object_bounds import ALERTS, GRANTS
from controller.events.alert_stage import alert_namespaces_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from controller.runtime.cache import Cache, Change


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


MOST_REFERENCES: Final = 200
"""Most references to FlagProviders in the used alerts of a namespace."""
MOST_INSTRUCTIONS: Final = 5_000
"""Most instructions of all expressions and globs of a namespace; a common expression has 20. One takes 2.5 ns
for each character of a text at worst.
"""
_MOST_FLAG_CHARACTERS: Final = 8_000
"""Most characters of the keys of changed flags that globs are compared with."""


@dataclass(frozen=True, slots=True)
class Alert:
    """A valid FlagAlert."""

    resource: Resource
    spec: FlagAlertSpec
    instructions: int = 0
    """The instructions of its expressions and globs."""

    @property
    def providers(self) -> list[ObjectKey]:
        """Keys of its FlagProviders."""
        namespace = self.resource.namespace
        return [ObjectKey(PROVIDER, namespace, name) for name in self.spec.providers]

    @property
    def selects_namespaces(self) -> bool:
        """Whether it may be about objects of other namespaces."""
        return any(source.namespace_selector is not None for source in self.spec.event_sources)

    def subject(self, key: ObjectKey) -> str:
        """Return the key of a report about an object: `<alert>/<kind>/<name>`."""
        place = "" if key.namespace == self.resource.namespace else f"{key.namespace}/"
        return f"{self.resource.name}/{key.kind}/{place}{key.name}"


def split_subject(subject: str, namespace: str) -> tuple[str, ObjectKey]:
    """Split the output of `Alert.subject` into (alert's name, object); `namespace` is the alert's."""
    alert, kind, *place = subject.split("/")
    return alert, ObjectKey(kind, place[0] if len(place) > 1 else namespace, place[-1] if place else "")


@dataclass(frozen=True, slots=True)
class Facts:
    """A message with the facts that alerts select by."""

    message: Message
    subject: Resource | None
    """The object, if it is in the cache."""
    flags: tuple[str, ...] = ()
    """Keys of the changed flags; may be empty."""
    ends: bool = False
    """Whether it ends a failure that a warning reported."""


def wants(spec: FlagAlertSpec, facts: Facts) -> bool:
    """Whether the alert selects a message by severity, words, flags and flag set; exclusion wins."""
    message = facts.message
    severity = "warning" if facts.ends else message.severity
    if SEVERITIES.index(severity) < SEVERITIES.index(spec.event_severity):
        return False
    if _matches_any(spec.exclusion_list, message.message):
        return False
    if spec.inclusion_list and not _matches_any(spec.inclusion_list, message.message):
        return False
    if spec.flags and facts.flags and not _names_any(spec.flags, facts.flags):
        return False
    flag_set = flag_set_id(facts.subject)
    return not spec.flag_sets or not flag_set or _names_any(spec.flag_sets, (flag_set,))


def _matches_any(expressions: Iterable[str], text: str) -> bool:
    return any(expression(pattern).search(text) is not None for pattern in expressions)


def _names_any(globs: tuple[str, ...], names: tuple[str, ...]) -> bool:
    """Whether a glob matches one of the names; also where there are more names than are compared."""
    text = "\n".join(name.replace("\n", " ") for name in names)
    return len(text) > _MOST_FLAG_CHARACTERS or glob_list(globs).search(text) is not None


def flag_set_id(subject: Resource | None) -> str:
    """Return the flagSetId of an object that is or delivers a flag set; else empty."""
    if subject is None:
        return ""
    if subject.key.kind == flagset.KIND:
        given = FlagSetStatus.of(subject).flag_set_id or subject.spec.get("flagSetId")
        return str(given or f"{subject.namespace}/{subject.name}")
    if subject.key.kind not in {featureflagconfiguration.KIND, featureflagconfiguration.FLAG_KIND}:
        return ""
    content = subject.spec.get("flagSpec")
    metadata = content.get("metadata") if isinstance(content, dict) else None
    return str(metadata.get("flagSetId") or "") if isinstance(metadata, dict) else ""


class AlertSelection:
    """The valid alerts by namespace, and the objects that each selects."""

    def __init__(self, objects: Cache) -> None:
        """`objects`: each of its changes is to be passed to `on_change`."""
        self._objects = objects
        self._grants = AlertGrants()
        for namespace in {resource.namespace for resource in objects.of_kind(flaggrant.KIND)}:
            self._grants.select(namespace, objects.of_kind(flaggrant.KIND, namespace))
        self._parsed: dict[str, dict[str, Alert | None]] = {}
        """By namespace, of the oldest alerts: the alert by version; None: it is invalid."""
        self._used: dict[str, dict[str, Alert]] = {}
        for namespace in {resource.namespace for resource in objects.of_kind(alerts.KIND)}:
            self._select(namespace)

    def on_change(self, change: Change) -> set[ObjectKey]:
        """Record a change of an alert or a grant; return other alerts that are used since, or no longer."""
        key = change.latest.key
        if key.kind == flaggrant.KIND:
            self._grants.select(key.namespace, self._objects.of_kind(key.kind, key.namespace))
        elif key.kind == alerts.KIND and _version(change.before) != _version(change.after):
            before = self.alerts_in(key.namespace).keys()
            self._select(key.namespace)
            names = (before ^ self.alerts_in(key.namespace).keys()) - {key.name}
            return {ObjectKey(alerts.KIND, key.namespace, name) for name in names}
        return set()

    def _select(self, namespace: str) -> None:
        before, parsed, used = self._parsed.get(namespace, {}), {}, {}
        instructions, references = 0, 0
        known = self._objects.of_kind(alerts.KIND, namespace)
        for resource in ALERTS.oldest(known):
            version = _version(resource)
            alert = parsed[version] = before[version] if version in before else _parse(resource)
            if alert is None or resource.suspended or resource.deleting:
                continue
            instructions += alert.instructions
            references += len(alert.spec.providers)
            if instructions > MOST_INSTRUCTIONS or references > MOST_REFERENCES:
                break
            used[resource.name] = alert
        self._parsed[namespace], self._used[namespace] = parsed, used
        if not known:
            del self._parsed[namespace], self._used[namespace]

    def alerts_in(self, namespace: str) -> Mapping[str, Alert]:
        """Return the alerts of a namespace that are used, by name."""
        return self._used.get(namespace, {})

    def exceeds_limits(self, resource: Resource) -> bool:
        """Whether an alert is valid and not used, since the namespace has too many."""
        namespace = resource.namespace
        if (
            self._objects.get(resource.key) is None
            or resource.suspended
            or resource.name in self.alerts_in(namespace)
        ):
            return False
        return self._parsed.get(namespace, {}).get(_version(resource), resource) is not None

    def of_provider(self, provider: ObjectKey) -> dict[str, Alert]:
        """Return the used alerts that name a provider, by name."""
        used = self.alerts_in(provider.namespace)
        return {name: alert for name, alert in used.items() if provider.name in alert.spec.providers}

    def near(self, namespace: str) -> list[Alert]:
        """Return the used alerts that may select objects of a namespace: its own, and those it lets in."""
        elsewhere = [
            alert
            for other in sorted(self._grants.alert_namespaces(namespace))
            if other != namespace
            for alert in self.alerts_in(other).values()
            if alert.selects_namespaces
        ]
        return [*self.alerts_in(namespace).values(), *elsewhere[: ALERTS.most]]

    def alerts_about(self, key: ObjectKey, labels: Mapping[str, str]) -> list[Alert]:
        """Return the used alerts that select an object, which has these labels."""
        return [alert for alert in self.near(key.namespace) if self.concerns(alert, key, labels)]

    def concerns(self, alert: Alert, key: ObjectKey, labels: Mapping[str, str]) -> bool:
        """Whether the alert selects an object, which has these labels."""
        return any(
            source.kind == key.kind
            and source.name in {EVERY, key.name}
            and source.match_labels.items() <= labels.items()
            and self._reaches(alert.resource.namespace, source, key)
            for source in alert.spec.event_sources
        )

    def is_withdrawn(self, alert: Alert, key: ObjectKey) -> bool:
        """Whether an object of another namespace is no longer selected by the alert. False until the
        namespace's labels are cached, which after a restart is later than the object.
        """
        if key.namespace == alert.resource.namespace:
            return False
        selecting = [source for source in alert.spec.event_sources if source.namespace_selector is not None]
        if selecting and self._namespace(key.namespace) is None:
            return False
        return not any(
            source.kind == key.kind and self._reaches(alert.resource.namespace, source, key)
            for source in selecting
        )

    def candidates(self, alert: Alert) -> Iterator[Resource]:
        """Yield the objects of the alert's kinds, in its namespace and those that let it in, each once."""
        own = alert.resource.namespace
        granting = self._grants.object_namespaces(own) if alert.selects_namespaces else ()
        for kind in dict.fromkeys(source.kind for source in alert.spec.event_sources):
            for namespace in sorted({own, *granting}):
                yield from self._objects.of_kind(kind, namespace)

    def namespaces_affected(self, change: Change) -> set[str]:
        """Return the namespaces whose alerts may select other objects since a grant or namespace changed."""
        if change.latest.key.kind == NAMESPACE.kind:
            return {change.latest.name, *self._grants.alert_namespaces(change.latest.name)}
        return {
            name
            for resource in (change.before, change.after)
            if resource
            for name in alert_namespaces_of(resource)
        }

    def _reaches(self, namespace: str, source: EventSource, key: ObjectKey) -> bool:
        """Whether an alert in `namespace` may select objects of this object's namespace."""
        if source.namespace_selector is None:
            return key.namespace == namespace
        labelled = self._namespace(key.namespace)
        if labelled is None or not source.namespace_selector.match_labels.items() <= labelled.labels.items():
            return False
        return key.namespace == namespace or self._grants.lets_in(
            key.namespace, namespace, key.kind, key.name
        )

    def _namespace(self, name: str) -> Resource | None:
        return self._objects.get(ObjectKey(NAMESPACE.kind, "", name))


def _version(resource: Resource | None) -> str:
    """Return what distinguishes a state of a spec from another; empty where there is none."""
    return (
        ""
        if resource is None
        else f"{resource.name}/{resource.uid}/{resource.generation}/{resource.deleting}"
    )


def _parse(resource: Resource) -> Alert | None:
    try:
        spec = parse_spec(FlagAlertSpec, resource)
    except InvalidSpecError:
        # The error is in its own status.
        return None
    patterns = [expression(text) for text in (*spec.inclusion_list, *spec.exclusion_list)]
    patterns += [glob_list(globs) for globs in (spec.flags, spec.flag_sets) if globs]
    return Alert(resource, spec, sum(pattern.programsize for pattern in patterns))
