"""The outcomes of a flag's rule beside the flag's variants: names that are no variant, variants that nothing
can reach. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evaluator.flags.checking.operators import REFERENCE, did_you_mean, shown
from evaluator.flags.checking.outcomes import variant_named
from evaluator.flags.syntax.problems import Severity
from evaluator.flags.syntax.text import choices, quoted

if TYPE_CHECKING:
    from evaluator.flags.checking.operators import Path
    from evaluator.flags.checking.outcomes import OutcomeReader
    from evaluator.flags.layers.assembled import Assembled
    from evaluator.flags.model import Flag, Json

_SUGGESTIONS: Final = 3
"""Names of one rule that get a suggestion: each costs a search."""


def check_reach(flag: Assembled, checked: Flag, reader: OutcomeReader) -> None:
    """Warn of each literal outcome of `checked.targeting` that is no variant; note variants without a way to
    them. The rule must be within its bounds.
    """
    variants = checked.variants
    if not variants or not isinstance(checked.targeting, dict) or not checked.targeting:
        return
    outcomes = reader.of(checked.targeting)
    reached = {checked.default_variant}
    unknown = 0
    for path, value in outcomes.literals:
        name = variant_named(value)
        if name in variants:
            reached.add(name)
            continue
        near = did_you_mean(name, variants) if name is not None and unknown < _SUGGESTIONS else ""
        unknown += 1
        _unknown_outcome(flag, path, value, name, near)
    if not outcomes.computed and not unknown:
        for name in variants.keys() - reached:
            message = f"nothing returns the variant {quoted(name)}: not `targeting`, not `defaultVariant`"
            flag.note("unused-variant", message, "variants", name)


def _unknown_outcome(flag: Assembled, path: Path, value: Json, name: str | None, near: str) -> None:
    text = shown(value)
    if name is not None and flag.index("variants", name) > flag.index("targeting"):
        message = f"the variant {quoted(name)} is removed here, but `targeting` can still return it"
        flag.warn("unknown-outcome", message, "variants", name, at_key=True)
        return
    subject = "this shared rule" if path[-1] == REFERENCE else "`targeting`"
    variants = choices(flag.value["variants"])
    message = f"{subject} can return {text}, which is not a variant{near}; the variants are {variants}"
    flag.find(Severity.WARNING, "unknown-outcome", message, "targeting", below=path)
