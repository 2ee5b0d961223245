"""FlagPolicy: what each change of flags must meet, in the shape of Kubernetes' ValidatingAdmissionPolicy
(https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy). A file of a repository
says the same.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final
from zoneinfo import ZoneInfo

from pydantic import ConfigDict, Field

from controller.api.fields import Labels, Model, that
from controller.api.kind import AGE_COLUMN, FOLLOWED_BY_ADMISSION, READ_BY_CONTROLLER, Kind, PrinterColumn
from controller.api.meta import API_VERSION
from controller.api.parsing import InvalidTextError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import AfterValidator

KIND: Final = "FlagPolicy"
VARIABLES: Final = "variables"
GIVEN: Final = frozenset({"old", "new", "plan", "author", "signer", "path", "time"})
"""What all expressions may use; those of variables and validations also `variables`."""


def _uses(names: frozenset[str]) -> AfterValidator:
    def require_expression(text: str) -> None:
        # Reading one takes long to load.
        from controller.api.expression_syntax import require  # noqa: PLC0415

        require(text, names)

    return that(require_expression)


def _require_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (LookupError, OSError, ValueError):
        raise InvalidTextError("must be a time zone such as Europe/Zurich") from None


_Text = Annotated[str, Field(min_length=1, max_length=1_024)]
_Given = Annotated[_Text, _uses(GIVEN)]
_WithVariables = Annotated[_Text, _uses(GIVEN | {VARIABLES})]
_Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$", max_length=63)]
_Label = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", max_length=63)]


class PolicyAction(StrEnum):
    """What a policy that is not met does."""

    DENY = "Deny"
    """Refuses the whole change."""
    HOLD = "Hold"
    """Holds the flag: it stays as it was."""
    WARN = "Warn"
    """Reports."""


class _Strict(Model):
    """A misspelt field would be a policy that allows everything."""

    # The API server takes no such word beside fields: it refuses or removes what a schema does not know.
    model_config = ConfigDict(
        extra="forbid", json_schema_extra=lambda schema: schema.pop("additionalProperties", None)
    )


class MatchCondition(_Strict):
    """Which changes a policy is about."""

    name: _Label
    """The condition's name."""
    expression: _Given
    """Whether the policy is about this change, in CEL."""


class PolicyVariable(_Strict):
    """A value that validations use."""

    name: _Identifier
    """The variable's name, after `variables.`."""
    expression: _WithVariables
    """What the variable is, in CEL; variables before it may be used."""


class PolicyValidation(_Strict):
    """What must hold."""

    expression: _WithVariables
    """What must be true of the change, in CEL."""
    message: Annotated[str, Field(max_length=1_024)] = ""
    """What is wrong where the expression is not true."""
    message_expression: _WithVariables | None = None
    """An expression that gives a text to be shown in place of `message`."""


class PolicyRules(_Strict):
    """What a change must meet."""

    action: PolicyAction
    """What happens where a validation does not hold. `Deny` refuses the whole revision. `Hold` keeps the flag
    as it is served; with `failurePolicy: Atomic` it refuses the revision. `Warn` is a problem in the status.
    At admission `Deny` and `Hold` refuse an object with flags, and `Warn` warns whoever writes it.
    """
    match_conditions: Annotated[tuple[MatchCondition, ...], Field(max_length=16)] = ()
    """Which changes the policy is about: those for which all conditions hold."""
    variables: Annotated[tuple[PolicyVariable, ...], Field(max_length=32)] = ()
    """Values that validations use."""
    validations: Annotated[tuple[PolicyValidation, ...], Field(min_length=1, max_length=32)]
    """What must hold for each flag that changes."""
    time_zone: Annotated[str, Field(max_length=64), that(_require_zone)] = "UTC"
    """The time zone of `time` in expressions."""

    @property
    def expressions(self) -> Iterator[str]:
        """All of them."""
        yield from (one.expression for one in self.match_conditions)
        yield from (one.expression for one in self.variables)
        for one in self.validations:
            yield one.expression
            yield one.message_expression or ""


class PolicyFile(PolicyRules):
    """What a file of a repository says."""

    name: _Label
    """The policy's name."""


class PolicySelector(Model):
    """Objects that have these labels."""

    match_labels: Labels = Field(default_factory=dict)
    """Labels that the object must have; all objects if there are none."""


class FlagPolicySpec(PolicyRules):
    """Which flag sets are judged, and by what."""

    namespaces: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=63)], ...], Field(max_length=64)
    ] = ()
    """The namespaces whose flag sets a policy in the controller's own namespace judges; `*` stands for any
    characters, and no entry for all namespaces. A policy elsewhere judges its own namespace alone.
    """
    selector: PolicySelector | None = None
    """The FlagSets, and objects with flags written by hand, that are judged, by their labels, which whoever
    writes them chooses; all if it is not set.
    """


RECORD: Final = Kind(
    API_VERSION,
    KIND,
    "flagpolicies",
    short_name="fpol",
    description="FlagPolicy is a rule on changes of flags, which FlagSets are built by.",
    spec=FlagPolicySpec,
    spec_description="Which flag sets are judged, and by what.",
    columns=(PrinterColumn("Action", ".spec.action"), AGE_COLUMN),
    status=None,
    rights=(READ_BY_CONTROLLER, FOLLOWED_BY_ADMISSION),
    quota=20,
)
