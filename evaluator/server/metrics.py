"""What Prometheus reads, gathered: flagd's counters of answers are here, what else is counted in `requests` and `condition`.

Counting an answer is one integer addition: a tally is found once per (flag, variant, reason) and kept by whoever caches the answer.
flagd's names (core/pkg/telemetry/metrics.go), in the form its OpenTelemetry exporter gives them. Labels come from flags that are
served and from fixed sets, never from a request, so their number is bounded.
"""

from __future__ import annotations

from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeAlias

from evaluator.server.condition import Condition
from evaluator.server.families import counter, imported, text
from evaluator.server.requests import Requests
from evaluator.server.rpcs import Durations

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from prometheus_client.core import Metric

    from evaluator.resolve import Resolution
    from evaluator.store import Snapshot, Store

PROVIDER: Final = "flagd"

IMPRESSIONS: Final = ("feature_flag_flagd_impression", "Evaluations of a flag.")
REASONS: Final = ("feature_flag_flagd_result_reason", "Evaluations by reason.")
IMPRESSION_LABELS: Final = (
    "feature_flag_key",
    "feature_flag_result_variant",
    "feature_flag_provider_name",
    "feature_flag_reason",
)
REASON_LABELS: Final = (
    "feature_flag_key",
    "feature_flag_provider_name",
    "feature_flag_reason",
    "ExceptionTypeKeyName",
)


class Tally:
    """A count that only grows."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


Encoded: TypeAlias = tuple[bytes, Tally]
"""An answer's bytes, and where it is counted."""

Answers: TypeAlias = "Mapping[tuple[str, str], Tally]"
"""One flag's, by variant and reason."""

STEP: Final = 16
"""Flags whose metrics are written in a row."""

MAX_REMEMBERED: Final = 200_000
"""Answers kept encoded, per protocol: far more than a flag set of the largest size gives in practice."""


def remember(answers: dict[Resolution, Encoded], resolution: Resolution, encoded: Encoded) -> None:
    """Keep `encoded` for the next time; starts over where a flag set gives ever new answers."""
    if len(answers) >= MAX_REMEMBERED:
        answers.clear()
    answers[resolution] = encoded


class Metrics:
    """The counters of one process."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        """`clock`: Unix seconds."""
        self.condition = Condition(store, clock)
        self.requests = Requests(perf_counter)
        self.rpcs = Durations(perf_counter)
        self._answers: dict[str, dict[tuple[str, str], Tally]] = {}
        self._errors: dict[tuple[str, str], Tally] = {}
        self.close = store.subscribe(self._forget_removed)

    def tally(self, key: str, resolution: Resolution) -> Tally:
        """The count that `resolution` of the flag `key` belongs to. Errors are counted by kind, whatever key was asked for."""
        reason = resolution.reason.value
        if resolution.error_code is not None:
            return self._errors.setdefault((reason, resolution.error_code.value), Tally())
        answers = self._answers.setdefault(key, {})
        return answers.setdefault((resolution.variant or "", reason), Tally())

    def text(self) -> Generator[None, None, bytes]:
        """Everything, in Prometheus' text format 0.0.4; a step is a few flags."""
        evaluations = yield from self._evaluations_text()
        yield from imported()
        evaluations.append(text(self._others()))
        return b"".join(evaluations)

    def collect(self) -> Iterator[Metric]:
        """Everything but the process' own, as families. Also called outside the loop, so it walks copies."""
        return chain(self._evaluations(), self._others())

    def _others(self) -> Iterator[Metric]:
        parts = (self.requests, self.rpcs, self.condition)
        return chain.from_iterable(part.families() for part in parts)

    def _forget_removed(self, snapshot: Snapshot) -> None:
        flags = snapshot.flag_set.flags
        for key in tuple(self._answers):
            if key not in flags:
                del self._answers[key]
                continue
            variants = flags[key].variants
            for variant, reason in tuple(self._answers[key]):
                if variant and variant not in variants:
                    del self._answers[key][variant, reason]

    def _evaluations_text(self) -> Generator[None, None, list[bytes]]:
        """`_evaluations` as text. Written by hand: there may be ten thousand flags."""
        impressions, reasons = [_head(*IMPRESSIONS).encode()], [_head(*REASONS).encode()]
        for number, (key, answers) in enumerate(list(self._answers.items()), 1):
            impressions.append("".join(_impressions(key, answers)).encode())
            reasons.append("".join(_reasons(key, answers)).encode())
            if not number % STEP:
                yield
        errors = "".join(
            f'{REASONS[0]}_total{{feature_flag_key="",feature_flag_provider_name="{PROVIDER}",'
            f'feature_flag_reason="{reason}",ExceptionTypeKeyName="{error}"}} {tally.count}.0\n'
            for (reason, error), tally in self._errors.items()
        )
        return [*impressions, *reasons, errors.encode()]

    def _evaluations(self) -> Iterator[Metric]:
        impressions = counter(*IMPRESSIONS, IMPRESSION_LABELS)
        reasons = counter(*REASONS, REASON_LABELS)
        for key, answers in list(self._answers.items()):
            for (variant, reason), tally in list(answers.items()):
                impressions.add_metric((key, variant, PROVIDER, reason), tally.count)
            for reason, count in _by_reason(dict(answers)).items():
                reasons.add_metric((key, PROVIDER, reason, ""), count)
        for (reason, error), tally in list(self._errors.items()):
            reasons.add_metric(("", PROVIDER, reason, error), tally.count)
        yield impressions
        yield reasons


def _impressions(key: str, answers: Answers) -> Iterator[str]:
    flag = f'{IMPRESSIONS[0]}_total{{feature_flag_key="{_escaped(key)}",feature_flag_provider_name="{PROVIDER}"'
    for (variant, reason), tally in answers.items():
        yield (
            f'{flag},feature_flag_reason="{reason}",'
            f'feature_flag_result_variant="{_escaped(variant)}"}} {tally.count}.0\n'
        )


def _reasons(key: str, answers: Answers) -> Iterator[str]:
    flag = f'{REASONS[0]}_total{{feature_flag_key="{_escaped(key)}",feature_flag_provider_name="{PROVIDER}"'
    for reason, count in _by_reason(answers).items():
        yield f'{flag},feature_flag_reason="{reason}",ExceptionTypeKeyName=""}} {count}.0\n'


def _by_reason(answers: Answers) -> dict[str, int]:
    found: dict[str, int] = {}
    for (_, reason), tally in answers.items():
        found[reason] = found.get(reason, 0) + tally.count
    return found


def _head(name: str, what: str) -> str:
    return f"# HELP {name}_total {what}\n# TYPE {name}_total counter\n"


def _escaped(value: str) -> str:
    """A label's value (https://prometheus.io/docs/instrumenting/exposition_formats/)."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
