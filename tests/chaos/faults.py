"""What breaks, when and for how long: drawn from a seed, written as lines, and read from them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

CONTROLLERS: Final = ("controller-a", "controller-b")
PROXIES: Final = ("proxy-a", "proxy-b")
EVALUATORS: Final = ("evaluator-1", "evaluator-2", "evaluator-3")
PLANE: Final = ("kube-apiserver", "etcd")
GIT: Final = "git"
TOKENS: Final = "tokens"
"""Of the evaluators, which one account has."""
_PROCESSES: Final = (*CONTROLLERS, *PROXIES, *EVALUATORS, *PLANE)
TARGETS: Final[dict[str, tuple[str, ...]]] = {
    "kill": _PROCESSES,
    "freeze": _PROCESSES,
    "hang": (GIT,),
    "refuse": (GIT,),
    "lie": (GIT,),
    "fill": (*CONTROLLERS, *EVALUATORS),
    "cut": (*CONTROLLERS, *PROXIES, *EVALUATORS),
    "expire": (TOKENS,),
}
"""What each kind of fault may befall."""
_PAUSES: Final = (0.5, 4.0)
_LENGTHS: Final = (0.5, 8.0)


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing that breaks `at` seconds after the start, and is whole again after so many `seconds`."""

    at: float
    kind: str
    target: str
    seconds: float

    @property
    def until(self) -> float:
        return self.at + self.seconds

    def __str__(self) -> str:
        return f"{self.at:.2f} {self.kind} {self.target} {self.seconds:.2f}"


def draw(chance: random.Random, seconds: float) -> list[Fault]:
    """Faults that are over after `seconds`; they overlap, and one target has one at a time."""
    drawn: list[Fault] = []
    at = chance.uniform(*_PAUSES)
    while at < seconds:
        kind = chance.choice(tuple(TARGETS))
        target = chance.choice(TARGETS[kind])
        fault = Fault(round(at, 2), kind, target, round(chance.uniform(*_LENGTHS), 2))
        if fault.until <= seconds and not any(each.target == target and each.until > at for each in drawn):
            drawn.append(fault)
        at += chance.uniform(*_PAUSES)
    return drawn


def read(lines: Sequence[str]) -> list[Fault]:
    """Faults as `str` writes them, in the order of their beginnings. Raises ValueError."""
    faults = []
    for line in filter(None, map(str.strip, lines)):
        at, kind, target, seconds = line.split()
        if target not in TARGETS.get(kind, ()):
            raise ValueError(f"no such fault: {line}")
        faults.append(Fault(float(at), kind, target, float(seconds)))
    return sorted(faults)
