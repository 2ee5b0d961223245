"""Types of a parsed flag set: immutable values, shared by evaluation and delivery."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Json: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, list or dict of the same."""

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the root of a document or of a rule."""

Scalar: TypeAlias = str | int | float | bool
"""A value of metadata."""


class Absent(Enum):
    """Distinguishes an absent value from JSON's null, as flagd does in `targeting`."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT

PROVENANCE_PREFIX: Final = "flagstaff.dev/"
"""Set and flag metadata keys under this prefix are ours: definitions may not use them."""

REVISION_KEY: Final = "flagstaff.dev/revision"
DIGEST_KEY: Final = "flagstaff.dev/digest"
AUTHOR_KEY: Final = "flagstaff.dev/author"
COMMITTED_AT_KEY: Final = "flagstaff.dev/committed-at"
VERIFIED_BY_KEY: Final = "flagstaff.dev/verified-by"
"""Key of the verified signature of the revision: a name and a key's fingerprint."""
BUCKETING_KEY: Final = "flagstaff.dev/bucketing"
"""Metadata key of a set for its generation of `fractional`, `v2` or `v3`. Content, not provenance."""
HELD_FROM_KEY: Final = "flagstaff.dev/held-from"
LEFT_OUT_KEY: Final = "flagstaff.dev/left-out"
"""Metadata key of a delivered set for the keys of flags, a JSON list in a string, of which the sender has no
good definition. They are not deleted: a receiver that has one keeps it.
"""
CONFIDENTIAL_KEY: Final = "flagstaff.dev/secret"
"""Metadata key of a flag: true if it has values of a Secret, which no message may repeat. Content."""
PREREQUISITES_KEY: Final = "flagstaff.dev/prerequisites"
"""Metadata key of a flag whose rule had prerequisites: their keys, a JSON list in a string. Content."""
STALE_KEY: Final = "flagstaff.dev/stale"
"""Metadata key of a served set: true while its source cannot confirm it; absent otherwise."""
STALE_SINCE_KEY: Final = "flagstaff.dev/stale-since"
"""Beside STALE_KEY: the last moment at which it was known to be current, RFC 3339 in UTC."""
FLAG_SET_KEY: Final = "flagstaff.dev/flag-set"
"""Metadata key of a flag that was delivered with those of other sets: its own set, as `Kind/name`."""
SETS_KEY: Final = "flagstaff.dev/flag-sets"
"""Metadata key of a delivered set that was composed of others: its parts, see `composed.parts_text`."""
PROVIDER_KEY: Final = "flagstaff.dev/provider"
"""Metadata key of a flag that a remote provider defines: that provider."""
PROVIDER_VERSION_KEY: Final = "flagstaff.dev/provider-version"
"""Beside PROVIDER_KEY: the version of the provider's flags."""
PROVENANCE_KEYS: Final = frozenset({
    REVISION_KEY, DIGEST_KEY, AUTHOR_KEY, COMMITTED_AT_KEY, VERIFIED_BY_KEY, HELD_FROM_KEY, LEFT_OUT_KEY,
    STALE_KEY, STALE_SINCE_KEY, FLAG_SET_KEY, SETS_KEY, PROVIDER_KEY, PROVIDER_VERSION_KEY,
})  # fmt: skip
"""Keys that record the origin of content; no digest covers them."""


class State(StrEnum):
    """Whether a flag takes part in evaluation."""

    ENABLED = "ENABLED"
    DISABLED = "DISABLED"


class Bucketing(StrEnum):
    """The generation of `fractional`: v2 hashes text, v3 hashes canonical CBOR."""

    V2 = "v2"
    V3 = "v3"


EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag as defined; `targeting` still holds its `$ref`s."""

    key: str
    state: State
    variants: Mapping[str, Json]
    default_variant: str | None = None
    """The variant if no rule chooses one; None: evaluation uses the caller's code default."""
    targeting: Json | Literal[Absent.ABSENT] = ABSENT
    metadata: Mapping[str, Scalar] = field(default_factory=lambda: EMPTY)
    """The flag's own metadata; set metadata is merged under it when a flag is resolved."""
    without: frozenset[str] = frozenset()
    """Keys of set metadata that the flag does not inherit: null in its own metadata."""
    canonical: str = field(default="", init=False, compare=False, repr=False)
    """What `canonical` made of the flag, kept for the next digest of a set with it; empty: nothing yet."""

    def metadata_under(self, inherited: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """Return the metadata of answers: the set's, patched by the flag's own."""
        if not self.metadata and not self.without:
            return inherited
        if not inherited:
            return self.metadata
        merged = {**inherited, **self.metadata}
        for key in self.without:
            merged.pop(key, None)
        return merged

    def flag_set_id_in(self, inherited: str | None) -> str:
        """Return the id of the flag set that the flag belongs to in a set of this id; "" for none."""
        own = self.metadata.get("flagSetId") if self.metadata else None
        if isinstance(own, str):
            return own
        return "" if inherited is None or "flagSetId" in self.without else inherited


class ComposedPart(NamedTuple):
    """One of the sets that a set was composed of."""

    order: str
    """What asks for it: differs between the parts of a set."""
    origin: str = ""
    """The set, as in FLAG_SET_KEY; empty: the sender did not send it, and nothing is known of it here."""
    digest: str = ""
    """The set's own digest, and empty where `origin` is."""
    revision: str = ""
    """The set's own revision, empty where it has none."""


@dataclass(frozen=True, slots=True)
class FlagSet:
    """A set of flags that belong together: the unit of delivery."""

    flags: Mapping[str, Flag] = field(default_factory=lambda: EMPTY)
    evaluators: Mapping[str, Json] = field(default_factory=lambda: EMPTY)
    """Shared rules by name, for `{"$ref": name}`."""
    metadata: Mapping[str, Scalar] = field(default_factory=lambda: EMPTY)
    others: tuple[Flag, ...] = ()
    """Flags of further flag sets whose key is in `flags`, by key and id: only a selector finds them."""
    parts: tuple[ComposedPart, ...] = ()
    """The sets that it was composed of, the last wins; empty for any other set."""

    @property
    def revision(self) -> str | None:
        """The source revision that last changed the content, if recorded."""
        value = self.metadata.get(REVISION_KEY)
        return None if value is None else str(value)

    @property
    def flag_set_id(self) -> str | None:
        """The set's own `flagSetId`, or None."""
        value = self.metadata.get("flagSetId")
        return value if isinstance(value, str) else None
