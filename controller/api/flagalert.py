"""FlagAlert: which events of which objects are reported to a FlagProvider."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import AfterValidator, Field

from controller.api.fields import (
    INT64,
    TIME,
    Duration,
    Labels,
    LocalReference,
    Model,
    Name,
    RuledModel,
    SpecRule,
    that,
)
from controller.api.flagprovider import Failure
from controller.api.kind import AGE_COLUMN, READY_COLUMN, STATUS_COLUMN, Kind, PrinterColumn
from controller.api.meta import API_VERSION
from controller.api.parsing import check, compile_pattern
from controller.api.records import ALERTED
from controller.api.status import Status

if TYPE_CHECKING:
    import re2

KIND: Final = "FlagAlert"
EVERY: Final = "*"
_MEMORY: Final = 1 << 16
"""Bytes that RE2 may use for one expression: about 1,000 instructions."""


# Shared by all tenants, each entry up to _MEMORY; an evicted one is compiled again in 0.1 ms.
@lru_cache(maxsize=1_024)
def expression(text: str) -> re2._Regexp:
    """Compile one entry of a list; its search takes linear time. Raises InvalidTextError."""
    return compile_pattern(text, _MEMORY)


Expressions = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=1024), that(expression)], ...], Field(max_length=32)
]
Wait = Annotated[Duration, AfterValidator(lambda seconds: min(seconds, 3_600.0))]
"""Seconds, at most an hour: a longer time is read as an hour."""
Repeat = Annotated[Duration, AfterValidator(lambda seconds: max(seconds, 60.0))]
"""Seconds, at least a minute: a shorter time is read as a minute."""


# Shared, too; 32 long globs take eight times as much as an expression.
@lru_cache(maxsize=128)
def glob_list(globs: tuple[str, ...]) -> re2._Regexp:
    """Compile globs into one expression, which finds a line that one of them matches.

    Raises InvalidTextError.
    """
    return compile_pattern(f"(?m)^(?:{'|'.join(map(_glob_expression, globs))})$", 8 * _MEMORY)


def _glob_expression(glob: str) -> str:
    """Translate a glob as `fnmatch` does: `*`, `?`, `[abc]` and `[!abc]`."""
    parts = []
    for part in re.findall(r"\[!?\]?[^]]*\]|.", glob, re.DOTALL):
        if len(part) > 2:
            negation = "^" if part[1] == "!" else ""
            letters = re.sub(r"([\\^[\]])", r"\\\1", part[1 + len(negation) : -1])
            parts.append(f"[{negation}{letters}]")
        else:
            parts.append({"*": ".*", "?": "."}.get(part) or re.escape(part))
    return "".join(parts)


def _require_globs(globs: tuple[str, ...]) -> tuple[str, ...]:
    if globs:
        glob_list(globs)
    return globs


Globs = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=253)], ...],
    Field(max_length=32),
    AfterValidator(_require_globs),
]


class NamespaceSelector(Model):
    """Namespaces that have these labels; every one where there are none."""

    match_labels: Labels = Field(default_factory=dict)
    """Labels of the [namespaces](#objects-of-other-namespaces) in which the objects are; all namespaces if
    there are none.
    """


if TYPE_CHECKING:
    AlertedKind = str
else:
    AlertedKind = Literal[tuple(each.kind for each in ALERTED)]


class EventSource(Model):
    """Objects of one kind in the alert's namespace, or in those that are selected and let the alert in."""

    kind: AlertedKind
    """The kind of the objects."""
    name: Name
    """The name of the object, or `*` for every object of the kind."""
    match_labels: Labels = Field(default_factory=dict)
    """Labels that the object must have."""
    namespace_selector: NamespaceSelector | None = None
    """Other namespaces in which the objects are, of those whose FlagGrant admits the alert; only the
    alert's own if it is not set.
    """


class FlagAlertSpec(RuledModel):
    """What the user asks for."""

    RULES = (
        SpecRule(
            "has(self.providerRef) || (has(self.providerRefs) && size(self.providerRefs) > 0)",
            "providerRef or providerRefs must name a FlagProvider",
            lambda spec: bool(spec.providers),
        ),
    )

    provider_ref: LocalReference | None = None
    """A FlagProvider in the same namespace, which receives each message."""
    provider_refs: Annotated[tuple[LocalReference, ...], Field(max_length=16)] = ()
    """More FlagProviders in the same namespace."""
    event_severity: Literal["info", "warning", "error"] = "info"
    """`info`: every Event; `warning`: Events of type Warning; `error`: Events after which the object is
    failing. Recoveries are always included.
    """
    event_sources: Annotated[tuple[EventSource, ...], Field(min_length=1, max_length=64)]
    """The objects whose Events are reported."""
    inclusion_list: Expressions = ()
    """Regular expressions ([RE2](https://github.com/google/re2/wiki/Syntax)); at least one must match a
    part of the message.
    """
    exclusion_list: Expressions = ()
    """Regular expressions; none may match. Exclusion has priority over inclusion."""
    flags: Globs = ()
    """Globs; at least one must match the key of a changed flag. Events that name no flags are not affected.
    """
    flag_sets: Globs = ()
    """Globs; at least one must match the flagSetId of the object, such as `shop/checkout`. Objects without
    a flagSetId are not affected.
    """
    group_by: Annotated[
        tuple[Literal["kind", "name", "reason", "severity", "revision"], ...], Field(max_length=5)
    ] = ()
    """What messages must have in common to be merged; all messages of the alert are merged if it is not
    set.
    """
    group_wait: Wait | None = None
    """How long a message waits so that later messages can be merged into it, at most `1h`."""
    repeat_interval: Repeat | None = None
    """How often a failure that continues is reported again, at least `1m`; only once if it is not set."""
    lasting: Annotated[Duration | None, Field(alias="for")] = None
    """How long a failure must last before it is reported, such as `5m`."""
    template: Annotated[str, Field(min_length=1, max_length=1024), that(check)] | None = None
    """The [text](#templates) of each message, with names such as `${reason}`."""
    summary: Annotated[str, Field(max_length=255)] | None = None
    """A text that is added to each message."""
    suspend: bool = False
    """Select nothing."""

    @property
    def providers(self) -> tuple[str, ...]:
        """The names of all, each once."""
        first = () if self.provider_ref is None else (self.provider_ref,)
        return tuple(dict.fromkeys(reference.name for reference in (*first, *self.provider_refs)))


class FlagAlertStatus(Status):
    """What became of it."""

    waiting: Annotated[int, INT64] = 0
    """How many messages of this alert wait to be delivered, at all FlagProviders."""
    last_delivery: Annotated[str, TIME] | None = None
    """When a message of this alert was delivered last."""
    last_failure: Failure | None = None
    """What the last failure of a message of this alert was, and since when; it stays after the next
    success.
    """


RECORD: Final = Kind(
    API_VERSION,
    KIND,
    "flagalerts",
    short_name="falert",
    description="FlagAlert chooses Events, and names the FlagProvider that they are sent to.",
    spec=FlagAlertSpec,
    status=FlagAlertStatus,
    columns=(
        READY_COLUMN,
        PrinterColumn("Provider", ".spec.providerRef.name"),
        PrinterColumn("Waiting", ".status.waiting", "integer"),
        STATUS_COLUMN,
        AGE_COLUMN,
    ),
    modules="events",
    quota=20,
)
