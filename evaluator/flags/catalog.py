"""Merges the flag sets of several sources and selects among them. Pure.

flagd's rules (core/pkg/store): a flag is known by its key and flag set id; of two with the same, the source
that stands later in the list wins. Unlike flagd, a losing flag is kept: it is served again once the winner is
removed, and the selector of its source finds it.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from evaluator.flags.canonical import digest as digest_of
from evaluator.flags.model import ABSENT, EMPTY, STALE_KEY, STALE_SINCE_KEY, Flag, FlagSet, Scalar
from evaluator.flags.overrides import OVERRIDE_KEY
from evaluator.flags.references import Expander, RuleTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


FLAG_SET_ID: Final = "flagSetId"
TOO_LARGE: Final = "rule-too-large"
"""Operator in place of a rule that cannot be expanded: no provider has it, so all answer PARSE_ERROR."""

_NOTHING: Final = FlagSet()
_NOTHING_DIGEST: Final = digest_of(_NOTHING)


class UnknownSourceError(LookupError):
    """No source has this name."""


class Catalog:
    """The present content of each source. Immutable; derived views are computed once, on first use, in time
    proportional to the number of flags: compute them in a thread before the event loop needs them.
    """

    def __init__(self, names: Sequence[str]) -> None:
        """names: the sources by priority, the last one wins. Raises ValueError for a repeated name."""
        self.names = tuple(names)
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"two sources have one name: {self.names}")
        self._delivered: dict[str, _Delivered] = {}

    def __eq__(self, other: object) -> bool:
        """Compare the content of all sources, provenance included."""
        if not isinstance(other, Catalog):
            return NotImplemented
        return self.names == other.names and self._delivered == other._delivered

    __hash__ = None  # type: ignore[assignment]  # equal by content, which takes long to hash

    def with_source(
        self,
        name: str,
        flag_set: FlagSet | None,
        digest: str | None = None,
        *,
        stale_since: str | None = None,
    ) -> Catalog:
        """Return the catalog in which `name` holds `flag_set`, or nothing; `self` if that changes nothing.
        `digest`, if the caller has it, saves half of the time; `stale_since` as in `with_staleness`. Raises
        UnknownSourceError.
        """
        if name not in self.names:
            raise UnknownSourceError(f"no source is named {name!r}; there are {self.names}")
        if flag_set is None:
            return self._with(name, None)
        return self._with(name, _Delivered(flag_set, digest or digest_of(flag_set), stale_since))

    def with_staleness(self, name: str, stale_since: str | None) -> Catalog:
        """Return the catalog in which `name` is marked stale since then (RFC 3339), or not stale."""
        held = self._delivered.get(name)
        if held is None or held.stale_since == stale_since:
            return self
        return self._with(name, _Delivered(held.delivered, held.digest, stale_since))

    def holds_as(self, other: Catalog) -> bool:
        """Return whether all sources have the same content, staleness marks ignored."""
        ours, theirs = self._delivered, other._delivered
        return self.names == other.names and ours.keys() == theirs.keys() and all(
            held.same_content(theirs[name]) for name, held in ours.items()
        )  # fmt: skip

    @property
    def stale_sources(self) -> frozenset[str]:
        """Return the sources that are marked stale."""
        return frozenset(name for name, held in self._delivered.items() if held.stale_since is not None)

    def _with(self, name: str, given: _Delivered | None) -> Catalog:
        if given == self._delivered.get(name):
            return self
        following = Catalog(self.names)
        latest = {**self._delivered, name: given}
        for source in self.names:
            if (delivered := latest.get(source)) is not None:
                following._delivered[source] = delivered
        return following

    @property
    def sets(self) -> Mapping[str, FlagSet]:
        """The content of each source that has any, in order of priority."""
        return {name: delivered.flag_set for name, delivered in self._delivered.items()}

    def of_source(self, name: str) -> FlagSet | None:
        """Return the set that `name` delivered, with losing flags; None: unknown source or nothing yet."""
        held = self._delivered.get(name)
        return None if held is None else held.flag_set

    def digest_of(self, name: str) -> str | None:
        """Return the digest of the set that `name` delivered."""
        held = self._delivered.get(name)
        return None if held is None else held.digest

    def digest_of_set(self, flag_set: FlagSet) -> str:
        """Return the digest of a view's flag set; digests of `everything` and of sources are cached."""
        if flag_set is self.everything:
            return self.digest
        known = (held.digest for held in self._delivered.values() if held.flag_set is flag_set)
        return next(known, None) or digest_of(flag_set)

    def source_of(self, key: str) -> str | None:
        """Return the source whose flag wins in `everything`."""
        for name, held in reversed(self._delivered.items()):
            if key in held.flag_set.flags:
                return name
        return None

    @cached_property
    def hidden_overrides(self) -> Mapping[str, Mapping[str, str]]:
        """For each source whose flags under an override other sources hide in `everything`: the hidden keys,
        and for each the source whose flag wins.
        """
        if len(self._delivered) <= 1:
            return EMPTY
        hidden: dict[str, dict[str, str]] = {}
        for name, held in self._delivered.items():
            for key, flag in held.flag_set.flags.items():
                if OVERRIDE_KEY in flag.metadata and (winner := self.source_of(key) or name) != name:
                    hidden.setdefault(name, {})[key] = winner
        return hidden

    @cached_property
    def digest(self) -> str:
        """Digest of all that affects evaluation: that of a single set, or a hash over all sets in order."""
        if len(self._delivered) <= 1:
            return next((held.digest for held in self._delivered.values()), _NOTHING_DIGEST)
        lines = "".join(f"{name}\0{held.digest}\n" for name, held in self._delivered.items())
        return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"

    @cached_property
    def everything(self) -> FlagSet:
        """Return all flags; for a key that several sources have, the flag of the last source. If one source
        alone has a set, this is that set. Flags of several have their references expanded and their set's
        metadata as their own, so this set has no evaluators and no metadata.
        """
        if len(self._delivered) <= 1:
            return next((held.flag_set for held in self._delivered.values()), _NOTHING)
        flags: dict[str, Flag] = {}
        for held in self._delivered.values():
            flags |= held.expanded_flags
        return FlagSet(flags)

    def of_flag_set(self, flag_set_id: str) -> FlagSet | None:
        """Return the flags of a flag set id: their own `flagSetId`, else their set's; "" selects flags
        without one. None if no flag has it. If there is no other id, the result is `everything`.
        """
        return self.flag_sets.get(flag_set_id)

    @cached_property
    def flag_sets(self) -> Mapping[str, FlagSet]:
        """Return all flag sets by their id."""
        known = {own for held in self._delivered.values() for own in held.ids}
        if len(known) == 1:
            return dict.fromkeys(known, self.everything)
        by_id: dict[str, dict[str, Flag]] = {own: {} for own in known}
        for held in self._delivered.values():
            for own, flags in held.by_set.items():
                by_id[own] |= flags
        return {own: FlagSet(flags) for own, flags in by_id.items()}


class _Delivered:
    """The set that one source delivered, with its flags as they are in a set of several sources."""

    def __init__(self, delivered: FlagSet, digest: str, stale_since: str | None = None) -> None:
        self.delivered = delivered
        self.digest = digest
        self.stale_since = stale_since
        self.flag_set = delivered if stale_since is None else _mark_stale(delivered, stale_since)
        """The delivered set, with its staleness mark."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Delivered):
            return NotImplemented
        return self.stale_since == other.stale_since and self.same_content(other)

    def same_content(self, other: _Delivered) -> bool:
        """Return whether the same set was delivered, provenance included."""
        return self.digest == other.digest and self.delivered == other.delivered

    __hash__ = None  # type: ignore[assignment]  # equal by content, which takes long to hash

    @cached_property
    def expanded_flags(self) -> Mapping[str, Flag]:
        """The flags with references expanded and their set's metadata, for views without a selector."""
        return fold(self.flag_set)

    @cached_property
    def ids(self) -> frozenset[str]:
        """The set's own id, and those of its flags."""
        inherited = self.flag_set.flag_set_id
        flags = (*self.flag_set.flags.values(), *self.flag_set.others)
        return frozenset({inherited or "", *(flag.flag_set_id_in(inherited) for flag in flags)})

    @cached_property
    def by_set(self) -> Mapping[str, Mapping[str, Flag]]:
        """The flags of each flag set, with references expanded and their set's metadata."""
        inherited = self.flag_set.flag_set_id
        flags: dict[str, dict[str, Flag]] = {}
        for key, flag in self.flag_set.flags.items():
            flags.setdefault(flag.flag_set_id_in(inherited), {})[key] = self.expanded_flags[key]
        if self.flag_set.others:
            alone = _make_standalone(self.flag_set)
            for flag in self.flag_set.others:
                flags.setdefault(flag.flag_set_id_in(inherited), {})[flag.key] = alone(flag)
        return flags


def _mark_stale(delivered: FlagSet, since: str) -> FlagSet:
    # A mark of the peer itself wins: it knows since when it is stale.
    marks: dict[str, Scalar] = {STALE_KEY: True, STALE_SINCE_KEY: since}
    return replace(delivered, metadata=MappingProxyType({**marks, **delivered.metadata}))


def fold(flag_set: FlagSet) -> Mapping[str, Flag]:
    """Return flags that need no set: references expanded, the set's metadata under their own."""
    alone = _make_standalone(flag_set)
    return {key: alone(flag) for key, flag in flag_set.flags.items()}


def _make_standalone(flag_set: FlagSet) -> Callable[[Flag], Flag]:
    inherited = flag_set.metadata
    expander = Expander(flag_set.evaluators) if flag_set.evaluators else None

    def alone(flag: Flag) -> Flag:
        rule = flag.targeting
        if expander is not None and rule is not ABSENT:
            try:
                rule = expander.expand(rule)
            except RuleTooLarge as excess:
                rule = {TOO_LARGE: [str(excess)]}
        if rule is flag.targeting and not inherited:
            return flag
        # Flags without metadata of their own share one mapping: there may be many of them.
        metadata = flag.metadata_under(inherited) or EMPTY
        return Flag(flag.key, flag.state, flag.variants, flag.default_variant, rule, metadata)

    return alone
