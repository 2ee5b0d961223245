"""FlagOverride: sets one flag by hand, for a while, over what Git says."""

from __future__ import annotations

import contextlib
import json
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from controller.api import kind as record
from controller.api.fields import TIME, LocalReference, Model, RuledModel, SpecRule, in_schema, that
from controller.api.kind import AGE_COLUMN, READY_COLUMN, Kind, PrinterColumn
from controller.api.meta import API_VERSION
from controller.api.parsing import InvalidTextError
from controller.api.status import Status
from evaluator.flags.model import ABSENT
from evaluator.flags.overrides import MOST_KEPT, Kept
from evaluator.host.times import read_time

if TYPE_CHECKING:
    from datetime import datetime

KIND: Final = "FlagOverride"
SET_BY: Final = "flagstaff.dev/set-by"
"""The annotation with the user who wrote the spec; admission alone decides its value."""

ACTIVE: Final = "Active"
EXPIRED: Final = "Expired"
HIDDEN: Final = "Hidden"
TOO_MANY: Final = "TooManyOverrides"


def moment_of(text: str) -> datetime:
    """The moment that RFC 3339 `text` names, in UTC. Raises InvalidTextError."""
    with contextlib.suppress(ValueError):
        if "T" in text.upper():
            return read_time(text)
    raise InvalidTextError("must be a time such as 2026-12-01T18:00:00Z")


def _require_words(text: str) -> None:
    if not text.strip():
        raise InvalidTextError("must say why the flag is overridden")


Text = Annotated[str, Field(min_length=1, max_length=512)]


class FlagOverrideSpec(RuledModel):
    """Sets one flag until a moment."""

    RULES = (
        SpecRule(
            "has(self.variant) != (has(self.disabled) && self.disabled)",
            "set exactly one of variant and disabled: true",
            lambda spec: (spec.variant is not None) != spec.disabled,
        ),
        SpecRule(
            "!has(self.audience) || has(self.variant)",
            "audience needs a variant: a flag is disabled for everybody",
            lambda spec: spec.audience is None or spec.variant is not None,
        ),
    )

    flag_set_ref: LocalReference
    """The FlagSet, FeatureFlagConfiguration or FeatureFlag in the same namespace that has the flag."""
    flag: Text
    """The flag's key."""
    variant: Text | None = None
    """The variant that the flag has meanwhile."""
    disabled: bool = False
    """Disable the flag: applications use their code defaults."""
    reason: Annotated[Text, in_schema(pattern=r"\S"), that(_require_words)]
    """Why, for people: it is in the metadata of every answer of the flag."""
    expires_at: Annotated[str, Field(max_length=64), TIME, that(moment_of)]
    """When the override ends by itself, RFC 3339 such as `2026-12-01T18:00:00Z`."""
    audience: Annotated[dict[str, Any], in_schema(x_kubernetes_map_type="atomic")] | None = None
    """A rule in JSONLogic over the evaluation context, such as `{"==": [{"var": "country"}, "NL"]}`: the
    override is in force where it is true. Everybody if it is not set.
    """

    @cached_property
    def end(self) -> int:
        """`expires_at` in Unix seconds."""
        return int(moment_of(self.expires_at).timestamp())


JsonText = Annotated[str, Field(max_length=MOST_KEPT)]


class KeptDefinition(Model):
    """What an override keeps of the flag's definition from the moment at which it came into force."""

    flag_set: Annotated[str, Field(max_length=253)]
    """`spec.flagSetRef.name` at that moment: for another set, flag or variant, this does not count."""
    flag: Text
    """`spec.flag` at that moment."""
    variant: Text | None = None
    """`spec.variant` at that moment; absent: the flag is disabled."""
    value: JsonText | None = None
    """The variant's value, as JSON."""
    rules: JsonText | None = None
    """The shared rules that `spec.audience` refers to, by name, as a JSON object."""

    @cached_property
    def decoded(self) -> Kept | None:
        """The value and the rules; None where they are malformed."""
        try:
            value = ABSENT if self.value is None else json.loads(self.value)
            rules = {} if self.rules is None else json.loads(self.rules)
        except (ValueError, RecursionError):
            return None
        fits = (value is ABSENT) == (self.variant is None) and isinstance(rules, dict)
        return Kept(value, rules) if fits else None


class FlagOverrideStatus(Status):
    """What became of it."""

    state: (
        Literal[
            "Active",
            "Expired",
            "Hidden",
            "UnknownFlagSet",
            "UnknownFlag",
            "UnknownVariant",
            "RuleTooLarge",
            "InvalidAudience",
            "TooManyOverrides",
            "InvalidSpec",
        ]
        | None
    ) = None
    """Whether it is in force, and why it is not."""
    hides: Annotated[str, Field(max_length=1024)] | None = None
    """What the definition of the flag says, which the override hides."""
    kept: KeptDefinition | None = None
    """What it keeps of the definition until it ends, whatever becomes of the flag."""


RECORD: Final = Kind(
    API_VERSION,
    KIND,
    "flagoverrides",
    short_name="fover",
    description="FlagOverride sets one flag by hand until a moment, over what Git says.",
    spec=FlagOverrideSpec,
    spec_description="The flag, what it is meanwhile, why, and until when.",
    status=FlagOverrideStatus,
    columns=(
        PrinterColumn("Set", ".spec.flagSetRef.name"),
        PrinterColumn("Flag", ".spec.flag"),
        PrinterColumn("Variant", ".spec.variant"),
        PrinterColumn("Reason", ".spec.reason"),
        PrinterColumn("Expires", ".spec.expiresAt"),
        PrinterColumn("State", ".status.state"),
        PrinterColumn("By", r".metadata.annotations.flagstaff\.dev/set-by", priority=1),
        READY_COLUMN,
        AGE_COLUMN,
        record.STATUS_COLUMN,
    ),
    rights=(*record.RECONCILED, record.SHOWN_BY_PAGE, record.FOLLOWED_BY_PROXY, record.FOLLOWED_BY_ADMISSION),
    modules="rollouts",
    quota=20,
)
