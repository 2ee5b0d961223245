"""FlagAlert: of what a provider is reported."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from controller.api.objects.fields import Duration, LocalReference, Model, Name, that
from controller.api.objects.status import Status
from controller.api.parsing.patterns import compiled
from controller.api.parsing.templates import check
from controller.api.provider import Failure

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
    return compiled(text, _MEMORY)


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
    return compiled(f"(?m)^(?:{'|'.join(map(_glob_expression, globs))})$", 8 * _MEMORY)


def _glob_expression(glob: str) -> str:
    """Translate a glob as `fnmatch` does: `*`, `?`, `[abc]` and `[!abc]`."""
    parts = []
    for part in re.findall(r"\[!?[^]]+\]|.", glob, re.DOTALL):
        if len(part) > 1:
            inner = part[1:-1].replace("\\", "\\\\").replace("^", "\\^").replace("[", "\\[")
            parts.append(f"[{'^' + inner[1:] if inner.startswith('!') else inner}]")
        else:
            parts.append({"*": ".*", "?": "."}.get(part) or re.escape(part))
    return "".join(parts)


def _require_globs(globs: tuple[str, ...]) -> tuple[str, ...]:
    if globs:
        glob_list(globs)
    return globs


def _refuse_condition(condition: object) -> None:
    """Raise ValueError: an alert whose condition was passed over would send more than it was asked to."""
    if condition is not None:
        raise ValueError(
            "conditions in CEL were removed; use eventSources with matchLabels, flags, flagSets, "
            "eventSeverity, inclusionList and exclusionList"
        )


Globs = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=253)], ...],
    Field(max_length=32),
    AfterValidator(_require_globs),
]
Removed = Annotated[None, BeforeValidator(_refuse_condition)]
"""Was a CEL expression."""
Labels = Annotated[
    dict[Annotated[str, Field(max_length=317)], Annotated[str, Field(max_length=63)]], Field(max_length=32)
]


class NamespaceSelector(Model):
    """Namespaces that have these labels; every one where there are none."""

    match_labels: Labels = Field(default_factory=dict)


class EventSource(Model):
    """Objects of one kind in the alert's namespace, or in those that are selected and let the alert in."""

    kind: Literal[
        "FlagSource", "FlagSet", "FlagReceiver", "FeatureFlagConfiguration", "FeatureFlag", "EvaluatorUpgrade"
    ]
    name: Name
    match_labels: Labels = Field(default_factory=dict)
    namespace_selector: NamespaceSelector | None = None
    """Selects namespaces by their labels; None: the alert's own namespace."""


class FlagAlertSpec(Model):
    """What the user asks for."""

    provider_ref: LocalReference | None = None
    provider_refs: Annotated[tuple[LocalReference, ...], Field(max_length=16)] = ()
    event_severity: Literal["info", "warning", "error"] = "info"
    event_sources: Annotated[tuple[EventSource, ...], Field(min_length=1, max_length=64)]
    inclusion_list: Expressions = ()
    exclusion_list: Expressions = ()
    inclusion: Removed = None
    exclusion: Removed = None
    flags: Globs = ()
    flag_sets: Globs = ()
    group_by: tuple[Literal["kind", "name", "reason", "severity", "revision"], ...] = ()
    group_wait: Wait | None = None
    repeat_interval: Repeat | None = None
    lasting: Annotated[Duration | None, Field(alias="for")] = None
    """Seconds that a failure must last before it is reported."""
    template: Annotated[str, Field(min_length=1, max_length=1024), that(check)] | None = None
    summary: Annotated[str, Field(max_length=255)] | None = None
    suspend: bool = False

    @model_validator(mode="after")
    def _named(self) -> Self:
        if not self.providers:
            raise ValueError("providerRef or providerRefs must name a FlagProvider")
        return self

    @property
    def providers(self) -> tuple[str, ...]:
        """The names of all, each once."""
        first = () if self.provider_ref is None else (self.provider_ref,)
        return tuple(dict.fromkeys(each.name for each in (*first, *self.provider_refs)))


class FlagAlertStatus(Status):
    """What became of it."""

    waiting: int = 0
    last_delivery: str | None = None
    last_failure: Failure | None = None
