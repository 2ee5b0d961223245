"""The tests of rollouts, in closed form. Pure.

`guardrail`: is the candidate's rate of bad events more than `margin` times that of the others? In each check,
`a` of `n1` events of the candidate were bad, and `b` of `n2` events of the others. If the ratio of the rates
is `r`, a bad event is the candidate's with the probability `r n1 / (r n1 + n2)`. The evidence is the mean of
the likelihood ratios of some `r` greater than the margin against the margin. Its expectation is at most 1
while the ratio is at most the margin, so the probability that it ever reaches 1/alpha is at most alpha,
however often it is computed (Ville's inequality), and the share of users may change between checks.

`sample_ratio`: do the candidate's users have the share that they should? The Bayes factor of a
Dirichlet-multinomial against the shares (Lindon and Malek, "Anytime-Valid Inference for Multinomial Count
Data", NeurIPS 2022), with the same promise.

Both count events of users who are independent of each other: ten bad events of one user count as ten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

RATIOS: Final = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
"""How many times the margin each alternative is."""
_CONCENTRATION: Final = 100.0
"""The concentration of the prior, as a number of users."""
_MOST: Final = 690.0
"""The greatest logarithm whose exponential is a finite float, about."""


@dataclass(frozen=True, slots=True)
class Events:
    """What happened between two checks; all are at least 0."""

    bad: float
    """Bad events of the candidate."""
    bad_others: float
    total: float
    """All events of the candidate."""
    total_others: float


def add_events(weights: Sequence[float], events: Events, margin: float) -> tuple[float, ...]:
    """Return the logarithm of the evidence for each of RATIOS, with these events. `weights`: before them;
    empty: none yet.
    """
    before = tuple(weights) if len(weights) == len(RATIOS) else (0.0,) * len(RATIOS)
    if events.total <= 0 or events.total_others <= 0:
        # Nothing can be compared: the events of one side say nothing.
        return before
    null = _odds(margin, events)
    return tuple(
        weight
        + events.bad * math.log(_share(odds) / _share(null))
        + events.bad_others * math.log((1 + null) / (1 + odds))
        for weight, odds in zip(before, (_odds(ratio * margin, events) for ratio in RATIOS), strict=True)
    )


def evidence(weights: Sequence[float]) -> float:
    """Return the evidence against the candidate, 1 without any; a rate is too high from 1/alpha on."""
    if not weights:
        return 1.0
    greatest = max(weights)
    total = sum(math.exp(weight - greatest) for weight in weights) / len(weights)
    return math.exp(min(_MOST, greatest + math.log(total)))


def sample_ratio(candidates: float, others: float, share: float) -> float:
    """Return the Bayes factor against `share` (between 0 and 1) of users in the candidate, 1 without users;
    the ratio is wrong from 1/alpha on.
    """
    expected = (share, 1 - share)
    prior = tuple(_CONCENTRATION * part for part in expected)
    counts = (candidates, others)
    logarithm = math.lgamma(_CONCENTRATION) - math.lgamma(_CONCENTRATION + sum(counts))
    for weight, part, count in zip(prior, expected, counts, strict=True):
        logarithm += math.lgamma(weight + count) - math.lgamma(weight) - count * math.log(part)
    return math.exp(min(_MOST, logarithm))


def _odds(ratio: float, events: Events) -> float:
    """Return the odds that a bad event is the candidate's."""
    return ratio * events.total / events.total_others


def _share(odds: float) -> float:
    return odds / (1 + odds)
