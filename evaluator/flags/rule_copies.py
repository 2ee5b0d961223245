"""Copies rules of one flag set into another, whose shared rules may differ. Pure."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from evaluator.flags.checking.references import Expander, RuleTooLarge, measure
from evaluator.flags.diff import same
from evaluator.flags.model import ABSENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.flags.model import Flag, Json


class RuleCopier:
    """Copies rules from a set with the `$evaluators` `before` into one with `after`."""

    def __init__(self, before: Mapping[str, Json], after: Mapping[str, Json]) -> None:
        self._before = Expander(before)
        self._after = Expander(after)

    def copy_flag(self, flag: Flag) -> Flag:
        """Return a flag with its rule copied."""
        return replace(flag, targeting=self.copy(flag.targeting))

    def copy(self, rule: Json) -> Json:
        """Return a rule, or ABSENT, that means the same. It is expanded only if evaluators changed its
        meaning: an unchanged flag must keep its digest.
        """
        if rule is ABSENT or not measure(rule).references:
            return rule
        meant = rule
        with suppress(RuleTooLarge):
            meant = self._before.expand(rule)
            return rule if same(meant, self._after.expand(rule)) else meant
        return meant
