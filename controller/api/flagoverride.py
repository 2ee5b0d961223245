"""FlagOverride: sets one flag by hand, for a while, over what Git says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from controller.api.objects.definition import AGE_COLUMN, READY_COLUMN, STATUS_COLUMN, Column, Definition
from controller.api.objects.fields import LocalReference, that
from controller.api.objects.rules import Rule, RuledModel
from controller.api.objects.schema_words import TIME, in_schema
from controller.api.objects.status import Status
from controller.api.parsing import InvalidTextError

KIND: Final = "FlagOverride"
SET_BY: Final = "flagstaff.dev/set-by"
"""The annotation with the user who wrote the spec; admission alone decides its value."""

ACTIVE: Final = "Active"
EXPIRED: Final = "Expired"
CONFLICT: Final = "Conflict"


def moment_of(text: str) -> datetime:
    """The moment that RFC 3339 `text` names, in UTC. Raises InvalidTextError."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None and "T" in text.upper():
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise InvalidTextError("must be a time such as 2026-12-01T18:00:00Z")


def _require_words(text: str) -> None:
    if not text.strip():
        raise InvalidTextError("must say why the flag is overridden")


Text = Annotated[str, Field(min_length=1, max_length=512)]


class FlagOverrideSpec(RuledModel):
    """Sets one flag until a moment."""

    RULES = (
        Rule(
            "has(self.variant) != (has(self.disabled) && self.disabled)",
            "set exactly one of variant and disabled: true",
            lambda spec: (spec.variant is not None) != spec.disabled,
        ),
        Rule(
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


class FlagOverrideStatus(Status):
    """What became of it."""

    state: (
        Literal[
            "Active",
            "Expired",
            "Conflict",
            "UnknownFlagSet",
            "UnknownFlag",
            "UnknownVariant",
            "AudienceOfDisabledFlag",
            "RuleTooLarge",
            "InvalidAudience",
            "InvalidSpec",
        ]
        | None
    ) = None
    """Whether it is in force, and why it is not."""
    hides: Annotated[str, Field(max_length=1024)] | None = None
    """What the definition of the flag says, which the override hides."""


DEFINITION: Final = Definition(
    KIND,
    "flagoverrides",
    "fover",
    "FlagOverride sets one flag by hand until a moment, over what Git says.",
    spec=FlagOverrideSpec,
    spec_description="The flag, what it is meanwhile, why, and until when.",
    status=FlagOverrideStatus,
    columns=(
        Column("Set", ".spec.flagSetRef.name"),
        Column("Flag", ".spec.flag"),
        Column("Variant", ".spec.variant"),
        Column("Reason", ".spec.reason"),
        Column("Expires", ".spec.expiresAt"),
        Column("State", ".status.state"),
        Column("By", r".metadata.annotations.flagstaff\.dev/set-by", priority=1),
        READY_COLUMN,
        AGE_COLUMN,
        STATUS_COLUMN,
    ),
)
