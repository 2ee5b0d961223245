"""FeatureFlagConfiguration and FeatureFlag in every version, read as one flagd document."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import ConfigDict, Field, OnErrorOmit, WithJsonSchema

from controller.api import kind as record
from controller.api import meta
from controller.api.fields import ATOMIC, ATOMIC_LIST, OPEN, InvalidSpecError, Model, Name
from controller.api.first_form import modernise
from controller.api.flagset_status import ProblemStatus
from controller.api.kind import AGE_COLUMN, READY_COLUMN, Kind, PrinterColumn
from controller.api.meta import OPENFEATURE_VERSION, Resource
from controller.api.remote_provider import ProviderStatus, RemoteFlagProvider
from controller.api.rollout_status import ServedRollout
from controller.api.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_ANY: Final[dict[str, Any]] = {"type": "object", OPEN: True}
_FLAG: Final[dict[str, Any]] = {
    **_ANY,
    "properties": {
        "state": {
            "description": "ENABLED, or DISABLED, where the caller's default is answered.",
            "type": "string",
        },
        "variants": {"description": "Values by name; all of one type.", **_ANY},
        "defaultVariant": {
            "description": (
                "The variant that is answered where targeting names none; null or absent is the caller's "
                "default."
            ),
            "type": "string",
            "nullable": True,
        },
        "targeting": {
            "description": "A JSONLogic rule that returns a variant's name.",
            **_ANY,
            "nullable": True,
        },
        "metadata": {"description": "Strings, numbers and booleans that are part of each answer.", **_ANY},
    },
}
FLAGD_DOCUMENT: Final = WithJsonSchema(
    {
        "type": "object",
        "required": ["flags"],
        "properties": {
            # Replaced whole by one owner: tracking each of ten thousand flags would not fit into an object.
            "flags": {
                "description": "Flags by key.",
                "type": "object",
                **ATOMIC,
                "additionalProperties": _FLAG,
            },
            "$evaluators": {"description": "Shared rules by name.", **_ANY, **ATOMIC},
            "metadata": {"description": "Of the set; merged under each flag's own.", **_ANY},
        },
    }
)
"""Of FeatureFlagConfiguration and FeatureFlag."""


KIND: Final = meta.CONFIGURATION_KIND
FLAG_KIND: Final = meta.FLAG_KIND
LISTS: Final = "$lists"
"""In a FlagShard: values that belong into lists of `$evaluators`, each with the path in these."""
MOST_BYTES: Final = 3 * 1024 * 1024
"""Most bytes of a document in a string: more does not fit into an object."""


class ShardReference(Model):
    """A part of a set that is larger than one object may be."""

    name: Name
    """The name of a FlagShard in the same namespace."""
    digest: Annotated[str, Field(min_length=1, max_length=128)]
    """The digest of the shard's content; a shard with another digest is not used."""
    flags: int | None = None
    """The number of flags in the shard."""


_IGNORED: Final = WithJsonSchema({"type": "object", "nullable": True, OPEN: True})


class ConfigurationSpec(Model):
    """What is delivered: just one of these."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": [form]} for form in ("flagSpec", "shards", "featureFlagSpec")]
        }
    )

    flag_spec: Annotated[dict[str, Any], FLAGD_DOCUMENT] | None = None
    """A document as flagd reads it: `flags`, `$evaluators` and `metadata`
    ([definitions](../definitions.md)).
    """
    shards: Annotated[tuple[ShardReference, ...], Field(min_length=1, max_length=256), ATOMIC_LIST] | None = (
        None
    )
    """The parts of a set that is larger than an object may be, written by a FlagSet. The set is served once
    all parts exist.
    """
    feature_flag_spec: Any = None
    """The [historic form](#versions): the document as a JSON string or as an object."""
    revision: str | None = None
    """The revision of a set in shards, which has no metadata here."""
    remote_flag_provider: RemoteFlagProvider | None = None
    """A [remote provider](../remote-providers.md) whose flags are merged with these, or override them."""
    service_provider: Annotated[Any, _IGNORED] = None
    """Ignored; a field of earlier versions of OpenFeature Operator."""
    sync_provider: Annotated[Any, _IGNORED] = None
    """Ignored; a field of earlier versions of OpenFeature Operator."""
    flag_d_spec: Annotated[Any, _IGNORED, Field(alias="flagDSpec")] = None
    """Ignored; a field of earlier versions of OpenFeature Operator."""
    resources: Annotated[Any, _IGNORED] = None
    """Ignored; a field of earlier versions of OpenFeature Operator."""


class FeatureFlagSpec(Model):
    """What OpenFeature Operator's kind holds."""

    flag_spec: Annotated[dict[str, Any], FLAGD_DOCUMENT] | None = None
    """A document as flagd reads it: `flags`, `$evaluators` and `metadata`
    ([definitions](../definitions.md)).
    """


class LaggardStatus(Model):
    """An evaluator that is silent, or serves something else."""

    name: str
    """Namespace and pod, or a process outside pods."""
    node: str | None = None
    """The node that it runs on, as far as known."""
    serves: str | None = None
    """A revision, or a digest where none is known; nothing where it is left out."""
    since: str | None = None
    """Since when it does not serve what it should."""
    silent: bool = False
    """It sent no report for 15 seconds, or for longer where a proxy has many evaluators."""
    claimed: bool = False
    """Nobody vouches for the name."""
    reason: str | None = None
    """Why it is not sent this set any more, such as OrderNotGranted; left out where it is sent it."""


class FeatureFlagStatus(Status):
    """What became of either kind."""

    revision: str | None = None
    """The source revision that last changed the content, where one is known."""
    digest: str | None = None
    """Digest of all fields that affect an evaluation."""
    local_digest: str | None = None
    """Of the object's own flags, where a rollout, an override or a remote provider changes what is served."""
    flag_set_id: str | None = None
    """Under which the set is served."""
    flags: int | None = None
    """How many flags the set has."""
    bucketing: str | None = None
    """The generation of `fractional` that is served; absent: each evaluator has its own, v2 unless set."""
    served: str | None = None
    """How many evaluators serve this digest, of how many there are."""
    problem_count: int | None = None
    """How many problems there are, also where fewer are listed."""
    problems: Annotated[tuple[ProblemStatus, ...], Field(max_length=50)] = ()
    """What is wrong with the definitions, errors first; 50 at most."""
    rollouts: Annotated[tuple[OnErrorOmit[ServedRollout], ...] | None, Field(max_length=256)] = None
    """The FlagRollouts of its flags, as `digest` has them."""

    @property
    def content(self) -> tuple[str, str]:
        """The revision of the content, and its digest."""
        return self.revision or "", self.digest or ""

    @property
    def served_by(self) -> int | None:
        """Return the first number of `served`, or None."""
        count = (self.served or "").partition("/")[0]
        return int(count) if count.isascii() and count.isdigit() else None

    @property
    def own_digest(self) -> str:
        """Return the digest of the object's own flags; empty where none is known."""
        return self.local_digest or self.digest or ""


class ConfigurationStatus(FeatureFlagStatus):
    """And who serves it, by the receipts of evaluators."""

    total: int | None = None
    """How many evaluators send receipts."""
    delivered: int | None = None
    """Streams of subscribers that send no receipts. It was delivered to them; what they serve they do not
    say.
    """
    served_within: str | None = None
    """The longest time from the moment at which the change was observed to the one at which an evaluator
    served it, such as 1.2s.
    """
    laggards: Annotated[tuple[OnErrorOmit[LaggardStatus], ...] | None, Field(max_length=20)] = None
    """Evaluators that are silent or serve something else, the longest first."""
    providers: Annotated[tuple[OnErrorOmit[ProviderStatus], ...] | None, Field(max_length=8)] = None
    """The remote provider's flags that are in force."""


@dataclass(frozen=True, slots=True)
class FlagDocument:
    """What an object says, as flagd would read it."""

    content: bytes
    """JSON."""
    warnings: tuple[str, ...] = ()
    """About a historic form."""


class MissingShardsError(Exception):
    """The set is not whole yet; the text names a shard that is not there."""


def flag_document(
    resource: Resource, shard: Callable[[str], Resource | None] = lambda _: None
) -> FlagDocument:
    """The document of an object of either kind and any version. `shard` finds a FlagShard beside it by name.

    Raises InvalidSpecError where there is none, MissingShardsError where a part of it is not there.
    """
    spec = resource.spec
    if spec.get("flagSpec") is not None:
        return FlagDocument(_bytes(spec["flagSpec"]))
    if spec.get("shards") is not None:
        return FlagDocument(_bytes(union_of_shards(spec["shards"], shard)))
    historic = spec.get("featureFlagSpec")
    if isinstance(historic, str):
        return _from_text(historic)
    if isinstance(historic, dict):
        return FlagDocument(_bytes(historic))
    raise InvalidSpecError("spec.flagSpec: there are no flags; this is where they belong")


def _bytes(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _from_text(text: str) -> FlagDocument:
    if len(text) > MOST_BYTES:
        raise InvalidSpecError(f"spec.featureFlagSpec: more than {MOST_BYTES} characters")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        # The parser says where it breaks.
        return FlagDocument(text.encode(errors="replace"))
    if not isinstance(document, dict):
        return FlagDocument(text.encode(errors="replace"))
    modern, warnings = modernise(document)
    same = modern == document
    return FlagDocument(text.encode(errors="replace") if same else _bytes(modern), warnings)


def union_of_shards(shards: Any, shard: Callable[[str], Resource | None]) -> Mapping[str, Any]:
    """The union of all shards, as a document; metadata and evaluators stand in the first, values of their
    long lists in others. Raises as `flag_document` does.
    """
    whole: dict[str, Any] = {"flags": {}}
    lists: dict[tuple[str | int, ...], list[Any]] = {}
    if not isinstance(shards, list) or not all(isinstance(reference, dict) for reference in shards):
        raise InvalidSpecError("spec.shards: this is a list of names and digests")
    for reference in shards:
        resource = shard(str(reference.get("name")))
        if resource is None or resource.spec.get("digest") != reference.get("digest"):
            raise MissingShardsError(f"FlagShard {reference.get('name')} is not there yet")
        part = resource.spec.get("flagSpec")
        flags = part.get("flags") if isinstance(part, dict) else None
        if not isinstance(part, dict) or not isinstance(flags, dict):
            raise InvalidSpecError(f"spec.shards: FlagShard {reference.get('name')} has no flags")
        whole["flags"].update(flags)
        for name in ("$evaluators", "metadata"):
            if part.get(name):
                whole[name] = part[name]
        try:
            for one in part.get(LISTS, ()):
                lists.setdefault(tuple(one["path"]), []).extend(one["values"])
        except (TypeError, KeyError):
            raise InvalidSpecError(
                f"spec.shards: FlagShard {reference.get('name')} has a list that cannot be read"
            ) from None
    if lists:
        whole["$evaluators"] = _with_lists(whole.get("$evaluators"), (), lists)
    return whole


def _with_lists(rule: Any, path: tuple[str | int, ...], lists: Mapping[tuple[str | int, ...], Any]) -> Any:
    """Return a copy of the rule with each list at its path."""
    if path in lists:
        return lists[path]
    if isinstance(rule, dict):
        return {key: _with_lists(part, (*path, key), lists) for key, part in rule.items()}
    if isinstance(rule, list):
        return [_with_lists(part, (*path, at), lists) for at, part in enumerate(rule)]
    return rule


RECORD: Final = Kind(
    OPENFEATURE_VERSION,
    KIND,
    "featureflagconfigurations",
    short_name="ffc",
    description="FeatureFlagConfiguration is one flag set as it is delivered.",
    spec=ConfigurationSpec,
    status=ConfigurationStatus,
    columns=(
        READY_COLUMN,
        PrinterColumn("Revision", ".status.revision"),
        PrinterColumn("Flags", ".status.flags", "integer"),
        PrinterColumn("Served", ".status.served"),
        *record.WITHHELD_COLUMNS,
        AGE_COLUMN,
        PrinterColumn("Status", '.status.conditions[?(@.type=="Ready")].message', priority=1),
        PrinterColumn("Set", ".status.flagSetId", priority=1),
    ),
    # The fields of all, so that nothing is pruned; OpenFeature Operator takes a spec without flags.
    older={"v1alpha2": {"oneOf": None}, "v1alpha1": {"oneOf": None}},
    judged=False,
    rights=(
        *record.RECONCILED,
        record.SHOWN_BY_PAGE,
        record.FOLLOWED_BY_PROXY,
        record.FOLLOWED_BY_ADMISSION,
        record.DELIVERED_FOR_SETS,
    ),
    modules="configurations proxy",
    quota=100,
    is_granted=True,
    has_alerts=True,
)

FEATURE_FLAG_RECORD: Final = Kind(
    OPENFEATURE_VERSION,
    FLAG_KIND,
    "featureflags",
    short_name="ff",
    description="FeatureFlag is one flag set as OpenFeature Operator and flagd read it.",
    spec=FeatureFlagSpec,
    status=FeatureFlagStatus,
    columns=(
        READY_COLUMN,
        PrinterColumn("Revision", ".status.revision"),
        PrinterColumn("Flags", ".status.flags", "integer"),
        AGE_COLUMN,
        PrinterColumn("Status", '.status.conditions[?(@.type=="Ready")].message', priority=1),
        PrinterColumn("Set", ".status.flagSetId", priority=1),
    ),
    note=(
        "Where OpenFeature Operator's own definition is installed already, leave this one out: flags are "
        "read either way, but that one has no room for a status."
    ),
    needs_spec=False,
    judged=False,
    rights=(
        *record.RECONCILED,
        record.SHOWN_BY_PAGE,
        record.FOLLOWED_BY_PROXY,
        record.FOLLOWED_BY_ADMISSION,
        record.DELIVERED_FOR_SETS,
    ),
    quota=100,
    is_granted=True,
    has_alerts=True,
)
