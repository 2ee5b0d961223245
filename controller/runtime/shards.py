"""Which objects this controller reconciles, where several share a cluster, and who reconciles the others.

A selector chooses what is reconciled, never what is known: caches hold every object, so that references to
objects of another shard resolve. Each leader writes on its Lease what it selects.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from controller.api import flagalert, flagprovider
from controller.api.meta import GROUP, SHARD_KEY
from controller.runtime.setbacks import Setback

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from controller.api.meta import Resource

log = logging.getLogger(__name__)

UNSHARDED: Final = frozenset({flagalert.KIND, flagprovider.KIND})
"""Kinds of which the default controller reconciles every object: one process sends all alerts."""
_KEY: Final = r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?"
_VALUE: Final = r"[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?"
_EXISTS: Final = re.compile(rf"(?P<no>!?)\s*(?P<key>{_KEY})", re.ASCII)
_EQUALS: Final = re.compile(rf"(?P<key>{_KEY})\s*(?P<is>==?|!=)\s*(?P<value>{_VALUE})", re.ASCII)
_AMONG: Final = re.compile(
    rf"(?P<key>{_KEY})\s+(?P<is>in|notin)\s*\((?P<values>\s*{_VALUE}\s*(?:,\s*{_VALUE}\s*)*)\)", re.ASCII
)
_COMMA: Final = re.compile(r",(?![^(]*\))")
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
"""A value that can be a part of the names of Lease and Services."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One part of a label selector."""

    key: str
    values: frozenset[str] | None
    """None: any value."""
    negated: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels fulfils it."""
        holds = self.key in labels if self.values is None else labels.get(self.key) in self.values
        return holds != self.negated


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A label selector as Kubernetes writes it: `a=b,!c,d in (e, f)`."""

    text: str
    requirements: tuple[Requirement, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError for what is no selector, and for one that selects everything."""
        if not text.strip():
            raise ValueError("must not be empty, as it would select every object; leave it out for that")
        return cls(text, tuple(_requirement(part.strip()) for part in _COMMA.split(text)))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        return all(requirement.matches(labels) for requirement in self.requirements)


def _requirement(text: str) -> Requirement:
    if match := _EXISTS.fullmatch(text):
        return Requirement(match["key"], None, bool(match["no"]))
    if match := _EQUALS.fullmatch(text):
        return Requirement(match["key"], frozenset({match["value"]}), match["is"] == "!=")
    if match := _AMONG.fullmatch(text):
        values = frozenset(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], values, match["is"] == "notin")
    raise ValueError(
        "must be a label selector such as sharding.fluxcd.io/key=shard1 or !sharding.fluxcd.io/key; "
        f"{text!r} is no requirement, or has no value"
    )


SELECTOR: Final = f"{GROUP}/watch-label-selector"
NAMESPACES: Final = f"{GROUP}/namespaces"
ARTIFACTS: Final = f"{GROUP}/artifact-address"
"""Annotations of a controller's Lease: which objects it reconciles, and where others fetch its artifacts."""
LEASE: Final = "flagstaff-controller"
"""The name of the default controller's Lease."""
LEASE_LABELS: Final = {"app.kubernetes.io/part-of": "flagstaff", "app.kubernetes.io/component": "controller"}


@dataclass(frozen=True, slots=True)
class Shard:
    """What one controller reconciles."""

    selector: LabelSelector | None = None
    """None: every object."""
    namespaces: frozenset[str] = frozenset()
    """Empty: all of them."""

    @classmethod
    def of(cls, selector: str | None, namespaces: Collection[str]) -> Self:
        """An empty selector is none. Raises ValueError."""
        return cls(LabelSelector.parse(selector) if selector else None, frozenset(namespaces))

    @property
    def is_default(self) -> bool:
        """Whether objects without labels are its own. It also does what is not divided."""
        return self.selector is None or self.selector.matches({})

    @property
    def name(self) -> str:
        """What tells its Lease and Services from those of the others; empty for the default controller."""
        if self.selector is None or self.is_default:
            return ""
        first, *more = self.selector.requirements
        value = "".join(first.values or ())
        named = first.key == SHARD_KEY and not first.negated and len(first.values or ()) == 1 and not more
        if named and _NAME.fullmatch(value):
            return value
        return hashlib.sha256(self.selector.text.encode()).hexdigest()[:10]

    def owns(self, resource: Resource) -> bool:
        """Whether this controller reconciles an object."""
        if self.namespaces and resource.namespace not in self.namespaces:
            return False
        if resource.key.kind in UNSHARDED:
            return self.is_default
        return self.selector is None or self.selector.matches(resource.labels)

    @property
    def keys(self) -> frozenset[str]:
        """The labels that the selector is about."""
        requirements = () if self.selector is None else self.selector.requirements
        return frozenset(requirement.key for requirement in requirements)

    def labels_of(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Those of them that an object has: what is written for it gets the same."""
        return {key: labels[key] for key in sorted(self.keys) if key in labels}

    def annotations(self, artifacts: str) -> dict[str, str]:
        """Return what its Lease says; `artifacts`: host and port of its artifact server."""
        text = "" if self.selector is None else self.selector.text
        return {SELECTOR: text, NAMESPACES: ",".join(sorted(self.namespaces)), ARTIFACTS: artifacts}


WHOLE: Final = Shard()
"""The only controller of a cluster."""

POLL_SECONDS: Final = 5.0
"""Seconds between two reads of the Leases."""
DURATION: Final = 20.0
"""Seconds after which a Lease that was not renewed has expired by our clock, and no standby has taken it."""


class LeaseReader(Protocol):
    """Reads Leases."""

    async def leases(self, namespace: str, labels: Mapping[str, str]) -> dict[str, Mapping[str, Any]]:
        """Those with these labels, by name. Raises Setback."""


@dataclass(slots=True)
class ShardFollower:
    """Knows the controllers beside this one, by their Leases in its namespace."""

    cluster: LeaseReader
    namespace: str
    clock: Callable[[], float]
    """Monotonic seconds."""
    pause: float = POLL_SECONDS
    """Seconds."""
    living: tuple[Shard, ...] | None = None
    """The controllers of which a replica leads; None: the Leases were not read yet."""
    artifacts: frozenset[str] = frozenset()
    """Host and port of the artifact servers of all."""
    _renewed: dict[str, tuple[str, float]] = field(default_factory=dict)
    """For each Lease, the time of its last renewal by its own clock, and by ours."""

    async def poll(self) -> None:
        """Read the Leases once, then pause."""
        try:
            self.learn(await self.cluster.leases(self.namespace, LEASE_LABELS))
        except Setback as setback:
            log.warning("the Leases of the controllers cannot be read: %s", setback.message)
        await asyncio.sleep(self.pause)

    def learn(self, leases: Mapping[str, Mapping[str, Any]]) -> None:
        """Take in what the Leases say."""
        now, living, artifacts = self.clock(), [], set()
        for name, lease in leases.items():
            spec, said = lease.get("spec") or {}, lease["metadata"].get("annotations") or {}
            artifacts |= {said[ARTIFACTS]} if said.get(ARTIFACTS) else set()
            renewed = str(spec.get("renewTime") or "")
            if self._renewed.get(name, ("", 0.0))[0] != renewed:
                self._renewed[name] = (renewed, now)
            held = bool(spec.get("holderIdentity")) and now - self._renewed[name][1] < DURATION
            if not held or SELECTOR not in said:
                continue
            try:
                namespaces = said.get(NAMESPACES) or ""
                living.append(Shard.of(said[SELECTOR], namespaces.split(",") if namespaces else ()))
            except ValueError as error:
                log.warning("Lease %s: the annotation %s: %s", name, SELECTOR, error)
        self._renewed = {name: renewed for name, renewed in self._renewed.items() if name in leases}
        self.living, self.artifacts = tuple(living), frozenset(artifacts)
