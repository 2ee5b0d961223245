"""What the page says of one flag: kind, owner, description, rule. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.delivery.state.flag_words import new_users_text
from evaluator.flags.checking.references import RuleTooLarge
from evaluator.flags.model import ABSENT, PROVENANCE_PREFIX
from evaluator.resolving.resolution import FlagType, flag_type
from evaluator.resolving.rule_clauses import clauses, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.delivery.state.flag_state import FlagState
    from evaluator.flags.marks import OwnRule
    from evaluator.flags.model import Flag, FlagSet, Json, Scalar
    from evaluator.resolving.resolve import CompiledFlagSet
    from evaluator.resolving.rule_clauses import Clause

_OWNERS: Final = ("owner", "team")
_DESCRIPTION: Final = "description"
_OURS: Final = frozenset({*_OWNERS, _DESCRIPTION, "flagSetId"})
CODE_DEFAULT: Final = "the default of the calling code"


def metadata_of(flag: Flag, flag_set: FlagSet) -> Mapping[str, Scalar]:
    """The metadata of a flag, with what it inherits from its set."""
    return flag.metadata_under(flag_set.metadata)


def owner_of(metadata: Mapping[str, Scalar]) -> str:
    """The owner, by `owner` or else `team`; empty: none is named."""
    return next((str(metadata[name]) for name in _OWNERS if name in metadata), "")


def description_of(metadata: Mapping[str, Scalar]) -> str:
    """The description; empty: there is none."""
    return str(metadata.get(_DESCRIPTION, ""))


def other_metadata(metadata: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The metadata that the page shows nowhere else, by name."""
    names = (name for name in metadata if name not in _OURS and not name.startswith(PROVENANCE_PREFIX))
    return {name: metadata[name] for name in sorted(names)}


def kind_of(flag: Flag) -> str:
    """`boolean`, `string`, `integer`, `float` or `object`; empty for a flag without a default variant."""
    kind = flag_type(flag)
    if kind is FlagType.FLOAT and all(isinstance(value, int) for value in flag.variants.values()):
        kind = FlagType.INTEGER
    return "" if kind is None else kind.value.lower()


def expand_rule(rule: Json, flags: CompiledFlagSet) -> Json:
    """A rule with its references expanded, as far as its size allows; ABSENT: none."""
    try:
        return ABSENT if rule is ABSENT else flags.expand(rule)
    except RuleTooLarge:
        return rule


def rule_clauses(rule: Json, flags: CompiledFlagSet) -> tuple[Clause, ...]:
    """The clauses of a rule."""
    return clauses(expand_rule(rule, flags))


def rule_text(state: FlagState, flags: CompiledFlagSet) -> str:
    """The rule of a flag in words; empty: it has none. In a rollout: `10%: v2; else v1`."""
    if len(state.rules) < 2:
        return next((sentence(rule_clauses(own.rule, flags)) for own in state.rules), "")
    new, promoted = (_definition_text(own, state, flags) for own in state.rules)
    return f"{new_users_text(state)}: {new}; else {promoted}"


@dataclass(frozen=True, slots=True)
class ShownDefinition:
    """A definition of a flag: its only one, or one of the two between which a rollout divides users."""

    title: str
    """Who gets it; empty: everybody."""
    clauses: tuple[Clause, ...]
    default: str
    """Its default variant; empty: the caller's own default."""


def definitions_of(state: FlagState, flags: CompiledFlagSet) -> tuple[ShownDefinition, ...]:
    """The definitions of a flag without the conditions of rollouts and overrides."""
    titles = ["Without the override" if state.override is not None else ""]
    if len(state.rules) > 1:
        titles = [f"For {new_users_text(state)}: the new definition", "For everybody else: the promoted one"]
    return tuple(
        ShownDefinition(title, rule_clauses(own.rule, flags), default_of(own, state))
        for title, own in zip(titles, state.rules, strict=False)
    )


def default_of(own: OwnRule, state: FlagState) -> str:
    """The default variant of a definition; empty: the caller's own default."""
    return own.default or (state.flag.default_variant if state.flag is not None else None) or ""


def _definition_text(own: OwnRule, state: FlagState, flags: CompiledFlagSet) -> str:
    rule = sentence(rule_clauses(own.rule, flags))
    return f"({rule})" if rule else default_of(own, state) or CODE_DEFAULT
