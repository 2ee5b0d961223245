"""Objects and flags as `flagstaff get` lists them, and the words for kinds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from controller.api import flagrollout, flagset, flagshard, flagsource, kinds
from controller.api.featureflagconfiguration import MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.api.kind import WITHHELD_COLUMNS, Kind, PrinterColumn, ResourceType
from controller.api.kinds import status_of
from controller.api.meta import ObjectKey
from controller.api.records import FLUX_SOURCES
from controller.api.status import FALSE, READY, TRUE
from controller.cli.output import Column
from controller.cli.printing import USAGE, Exit, did_you_mean, short
from controller.delivery.delivered import delivery_of
from controller.delivery.flag_state import FlagState, flag_states
from controller.delivery.rollout_state import rollout_state
from controller.delivery.set_reading import artifact_of
from controller.delivery.state_words import brief_layer, brief_text, served_ratio
from evaluator.flags.model import ABSENT, REVISION_KEY, Flag, FlagSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from controller.api.meta import Resource
    from controller.delivery.set_state import SetState


SOURCES: Final = (kinds.FLAG_SOURCE, *FLUX_SOURCES)
"""What a FlagSet may be built from."""
SHOWN: Final = (
    kinds.FLAG_SOURCE,
    kinds.FLAG_SET,
    kinds.FEATURE_FLAG_CONFIGURATION,
    kinds.FEATURE_FLAG,
    kinds.FLAG_RECEIVER,
    kinds.FLAG_PROVIDER,
    kinds.FLAG_ALERT,
    kinds.FLAG_GRANT,
    kinds.FLAG_OVERRIDE,
    kinds.FLAG_ROLLOUT,
    kinds.METRIC_TEMPLATE,
    kinds.FEATURE_FLAG_SOURCE,
    kinds.IN_PROCESS_CONFIGURATION,
    kinds.FLAGD,
    kinds.EVALUATOR_UPGRADE,
)
"""The kinds that users write or read; `all`."""
_SHORT: Final = {
    "source": kinds.FLAG_SOURCE,
    "set": kinds.FLAG_SET,
    "configuration": kinds.FEATURE_FLAG_CONFIGURATION,
    "receiver": kinds.FLAG_RECEIVER,
    "provider": kinds.FLAG_PROVIDER,
    "alert": kinds.FLAG_ALERT,
    "grant": kinds.FLAG_GRANT,
    "override": kinds.FLAG_OVERRIDE,
    "rollout": kinds.FLAG_ROLLOUT,
    "template": kinds.METRIC_TEMPLATE,
    "upgrade": kinds.EVALUATOR_UPGRADE,
}


def _words() -> dict[str, ResourceType]:
    words: dict[str, ResourceType] = {**_SHORT}
    for word, type_ in _SHORT.items():
        words[f"{word}s"] = type_
    short = {kind.kind: kind.short_name for kind in kinds.KINDS}
    for type_ in SHOWN:
        words[type_.kind.lower()] = words[type_.plural] = type_
        words[short[type_.kind]] = type_
    return words


WORDS: Final = _words()


def type_named(word: str, *others: str) -> ResourceType:
    """The kind of a word. Raises Exit with one that is spelled alike, of kinds and of `others`."""
    if (type_ := WORDS.get(word.lower())) is not None:
        return type_
    raise Exit(f"there is no kind {word!r}{did_you_mean(word, (*_SHORT, *others, *WORDS))}", USAGE)


def own_name(word: str, type_: ResourceType) -> str:
    """The name in `NAME` or `KIND/NAME`, for verbs about one kind. Raises Exit for another kind."""
    kind, slash, name = word.rpartition("/")
    if slash and type_named(kind) is not type_:
        raise Exit(f"{word}: name a {type_.kind}, not a {type_named(kind).kind}", USAGE)
    return name


def object_text(word: str) -> str:
    """`kind/name` in lower case with the cluster's name of a kind, of `KIND/NAME` with any. Raises Exit."""
    kind, slash, name = word.partition("/")
    if not slash or not name:
        raise Exit(f"{word!r}: write KIND/NAME, such as set/checkout", USAGE)
    known = WORDS.get(kind.lower())
    return f"{kind if known is None else known.kind}/{name}".lower()


def suspendable(type_: ResourceType) -> bool:
    """Whether objects of the kind can be suspended."""
    return isinstance(type_, Kind) and "suspend" in type_.spec.model_fields


RECORD: Final = ConfigDict(alias_generator=to_camel, populate_by_name=True)
"""JSON names of records: in camelCase."""


@dataclass(frozen=True, slots=True)
class ObjectRow:
    """One object."""

    __pydantic_config__ = RECORD

    kind: str
    """The object's kind."""
    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    ready: str | None = None
    """The status of the condition Ready: True, False or Unknown; absent where there is none."""
    reason: str | None = None
    """The reason of that condition."""
    message: str | None = None
    """The message of that condition."""
    suspended: bool = False
    """Whether it is suspended."""
    revision: str | None = None
    """The revision of the artifact, or the newest one that was applied."""
    since: str | None = None
    """Since when it has that revision, RFC 3339."""
    flags: int | None = None
    """How many flags it has."""
    served: str | None = None
    """How many evaluators serve it, of how many there are, such as 2/3."""
    source: str | None = None
    """Where it comes from: a URL, or KIND/NAME."""
    flag_set: str | None = None
    """Of a FlagRollout: the name of the flag set that it is about."""
    phase: str | None = None
    """Of a FlagRollout: what the candidate is at that needs attention most."""
    running: int | None = None
    """Of a FlagRollout: how many candidates run."""
    furthest: str | None = None
    """Of a FlagRollout: the step and share of the candidate that is the furthest, such as `2/4 50%`."""
    withheld: str | None = None
    """Of a flag set: what keeps flags of it from users, such as `rollout checkout 1/2 10%`."""
    cluster: str | None = None
    """The context of its cluster; absent where only one was read."""

    @property
    def key(self) -> ObjectKey:
        """The key of its object."""
        return ObjectKey(self.kind, self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class FlagRow:
    """One flag of a cluster."""

    __pydantic_config__ = RECORD

    key: str
    """The flag's key."""
    namespace: str
    """The namespace of the object that delivers it."""
    flag_set: str
    """The name of that object."""
    state: str
    """ENABLED or DISABLED."""
    type: str
    """The type of its values: boolean, string, number or object."""
    default_variant: str | None
    """The variant that is served if no rule chooses one; absent: the application's own default."""
    targeting: bool
    """Whether it has a rule."""
    revision: str | None = None
    """The revision that last changed the content of its flag set."""
    held_from: str | None = None
    """The revision whose definition is served, where a newer one is bad."""
    withheld: str | None = None
    """The rollout or override by which users do not get this definition."""
    cluster: str | None = None
    """The context of its cluster; absent where only one was read."""


def object_row(resource: Resource, state: SetState | None = None) -> ObjectRow:
    """The row of an object of any of our kinds; `state`: of its flag set, as far as that is known."""
    status = status_of(resource)
    ready = status.condition(READY)
    artifact = artifact_of(resource)
    revision, since = ("", "") if artifact is None else (artifact.revision, artifact.last_update_time)
    if state is not None:
        of_set = resource.key == state.writer
        revision = state.applied if of_set else state.revision
        since = next((entry.applied_at or "" for entry in state.history if of_set), "")
    row = ObjectRow(
        *(resource.key.kind, resource.namespace, resource.name),
        ready=ready.status or None,
        reason=ready.reason or None,
        message=ready.message or None,
        suspended=resource.suspended,
        revision=revision or None,
        since=since or None,
        flags=None if state is None else state.flags,
        served=None if state is None or state.served.total is None else served_ratio(state.served),
        source=_source(resource),
        withheld=None if state is None else brief_text(state) or None,
    )
    return _rollout_row(row, resource) if resource.key.kind == flagrollout.KIND else row


def _rollout_row(row: ObjectRow, resource: Resource) -> ObjectRow:
    """The row with what only a FlagRollout has."""
    state = rollout_state(resource)
    return replace(
        row,
        flag_set=state.flag_set,
        phase=state.phase,
        running=len(state.running),
        furthest=state.furthest or None,
    )


def _source(resource: Resource) -> str | None:
    if resource.key.kind == flagset.KIND:
        key = flagset.source_key(resource)
        return None if key is None else f"{key.kind}/{key.name}"
    if resource.key.kind == flagsource.KIND:
        return flagsource.source_address(resource)
    writer = flagset.proven_writer(resource)
    return f"{flagset.KIND}/{writer}" if writer else None


def flag_rows(
    resources: Iterable[Resource],
    find: Callable[[ObjectKey], Resource | None],
    states: Mapping[ObjectKey, SetState],
) -> Iterator[FlagRow]:
    """Yield the flags that FeatureFlagConfigurations and FeatureFlags deliver; `find` returns FlagShards. An
    object that delivers nothing is left out.
    """
    for resource in resources:
        if (flag_set := delivered_set(resource, find)) is not None:
            state = states[resource.key]
            known = flag_states(state, flag_set)
            for flag in flag_set.flags.values():
                yield _flag_row(resource, flag_set, flag, known[flag.key])


def has_condition(resource: Resource, kind: str, status: str) -> bool:
    """Whether an object has a condition with this status; upper and lower case are the same."""
    conditions = status_of(resource).conditions
    return any((one.type.lower(), one.status.lower()) == (kind, status) for one in conditions)


def delivered_set(resource: Resource, find: Callable[[ObjectKey], Resource | None]) -> FlagSet | None:
    """The flag set that an object delivers; None where it has none, or not all of its shards are there."""
    try:
        return delivery_of(resource, flagshard.finder(find, resource.namespace)).flag_set
    except (InvalidSpecError, MissingShardsError):
        return None


def _flag_row(resource: Resource, flag_set: FlagSet, flag: Flag, known: FlagState) -> FlagRow:
    revision = flag.metadata_under(flag_set.metadata).get(REVISION_KEY)
    return FlagRow(
        *(flag.key, resource.namespace, resource.name, flag.state.value),
        type=_type(next(iter(flag.variants.values()), None)),
        default_variant=flag.default_variant,
        targeting=flag.targeting is not ABSENT and flag.targeting != {},
        revision=None if revision is None else str(revision),
        held_from=known.held_from or None,
        withheld=", ".join(map(brief_layer, known.withheld)) or None,
    )


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    return "number" if isinstance(value, int | float) else "object"


def _ready_style(row: ObjectRow) -> str:
    return {TRUE: "green", FALSE: "red"}.get(row.ready or "", "yellow")


_PHASES: Final = {"Failed": "red", "RollingBack": "red", "Paused": "yellow", "WaitingPromotion": "yellow"}
_CLUSTER: Final = Column("CLUSTER", lambda row: row.cluster or "")
_NAMESPACE: Final = Column("NAMESPACE", lambda row: row.namespace)
_NAME: Final = Column("NAME", lambda row: row.name)
_READY: Final = Column("READY", lambda row: row.ready or "-", style=_ready_style)
_REVISION: Final = Column("REVISION", lambda row: short(row.revision or "-"))
_SUSPENDED: Final = Column(
    "SUSPENDED", lambda row: str(row.suspended), style=lambda row: "yellow" if row.suspended else ""
)
_STATUS: Final = Column(
    "STATUS", lambda row: short("; ".join(filter(None, (row.message, row.withheld))) or "-")
)
_FLAGS: Final = Column("FLAGS", lambda row: "-" if row.flags is None else str(row.flags))
_SERVED: Final = Column("SERVED", lambda row: row.served or "-")
_SINCE: Final = Column("SINCE", lambda row: row.since or "-", wide=True)
_SOURCE: Final = Column("SOURCE", lambda row: row.source or "-", wide=True)
_ENDING: Final = (_SINCE, _SOURCE, _SUSPENDED, _STATUS)
_OWN: Final = {
    "Ready": _READY,
    "Revision": _REVISION,
    "Flags": _FLAGS,
    "Served": _SERVED,
    "Since": _SINCE,
    "Source": _SOURCE,
    "URL": _SOURCE,
    "Suspended": _SUSPENDED,
    "Status": _STATUS,
    "Phase": Column(
        "PHASE", lambda row: row.phase or "-", style=lambda row: _PHASES.get(row.phase or "", "")
    ),
}
"""Columns that are read from the state of flag sets and rollouts instead of from one object, or coloured."""
_LEFT_OUT: Final = frozenset({"Age", *(column.name for column in WITHHELD_COLUMNS)})
"""Columns of kubectl that say less than STATUS does, and the age."""
_OF_ALL: Final = (
    Column("NAME", lambda row: f"{row.kind}/{row.name}"),
    *(_READY, _REVISION, _FLAGS, _SERVED, *_ENDING),
)
_OF_FLAGS: Final = (
    Column("KEY", lambda row: row.key),
    Column("FLAG SET", lambda row: row.flag_set),
    Column("STATE", lambda row: row.state, style=lambda row: "" if row.state == "ENABLED" else "yellow"),
    Column("TYPE", lambda row: row.type),
    Column("DEFAULT", lambda row: row.default_variant or "-"),
    Column("TARGETING", lambda row: "yes" if row.targeting else "no"),
    Column("REVISION", lambda row: short(row.held_from or row.revision or "-")),
    Column("WITHHELD BY", lambda row: row.withheld or "-"),
)


def columns_of(
    kind: str, find: Callable[[ObjectRow], Resource | None], *, namespaced: bool, clusters: bool
) -> list[Column]:
    """The columns of a table of `all`, of `flags`, or of one kind: then those of `kubectl get`. With the
    namespace or the cluster where there are several. `find` returns the object of a row.
    """
    columns = {"all": _OF_ALL, "flags": _OF_FLAGS}.get(kind) or (
        _NAME,
        *(
            _OWN.get(column.name) or _printed(column, find)
            for own in kinds.KINDS
            if own.kind == kind
            for column in own.columns
            if column.name not in _LEFT_OUT
        ),
    )
    return [*([_CLUSTER] if clusters else ()), *([_NAMESPACE] if namespaced else ()), *columns]


def _printed(column: PrinterColumn, find: Callable[[ObjectRow], Resource | None]) -> Column:
    def text(row: ObjectRow) -> str:
        resource = find(row)
        return "-" if resource is None else short(",".join(column.texts(_body(resource))) or "-")

    return Column(column.name.upper(), text, wide=column.priority > 0)


def _body(resource: Resource) -> dict[str, Any]:
    metadata = {"labels": resource.labels, "annotations": resource.annotations}
    return {"metadata": metadata, "spec": resource.spec, "status": resource.status}
