"""What the page says of one flag: kind, owner, description, rule. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evaluator.flags.checking.references import RuleTooLarge
from evaluator.flags.model import ABSENT, PROVENANCE_PREFIX
from evaluator.flags.rollouts import ROLLOUT_KEY, ROLLOUT_SHARE_KEY
from evaluator.resolving.resolution import FlagType, flag_type
from evaluator.resolving.rule_clauses import clauses, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.flags.model import Flag, FlagSet, Json, Scalar
    from evaluator.resolving.resolve import CompiledFlagSet
    from evaluator.resolving.rule_clauses import Clause

_OWNERS: Final = ("owner", "team")
_DESCRIPTION: Final = "description"
_OURS: Final = frozenset({*_OWNERS, _DESCRIPTION, "flagSetId"})


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


def rollout_sentences(flag_set: FlagSet) -> dict[str, str]:
    """How far a rollout has brought the new definition of each flag that is in one."""
    return {
        key: f"in rollout {flag.metadata[ROLLOUT_KEY]}, "
        f"{flag.metadata.get(ROLLOUT_SHARE_KEY)} % of users get the new definition"
        for key, flag in flag_set.flags.items()
        if ROLLOUT_KEY in flag.metadata
    }


def expanded_rule(flag: Flag, flags: CompiledFlagSet) -> Json:
    """The rule with its references expanded, as far as its size allows; ABSENT: none."""
    try:
        return ABSENT if flag.targeting is ABSENT else flags.expand(flag.targeting)
    except RuleTooLarge:
        return flag.targeting


def rule_clauses(flag: Flag, flags: CompiledFlagSet) -> tuple[Clause, ...]:
    """The clauses of a flag's rule."""
    return clauses(expanded_rule(flag, flags))


def rule_sentence(flag: Flag, flags: CompiledFlagSet) -> str:
    """The rule in words; empty: there is none."""
    return sentence(rule_clauses(flag, flags))
