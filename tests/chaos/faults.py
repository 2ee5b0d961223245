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
"""Of the evaluators, which one account has; those of controllers and proxies expire one by one."""
CERTIFICATES: Final = "certificates"
"""Of the proxies and of the controllers' webhook."""
_OURS: Final = (*CONTROLLERS, *PROXIES, *EVALUATORS)
_PROCESSES: Final = (*_OURS, *PLANE)
TARGETS: Final[dict[str, tuple[str, ...]]] = {
    "kill": _PROCESSES, "freeze": _PROCESSES, "hang": (GIT,), "refuse": (GIT,), "lie": (GIT,),
    "fill": (*CONTROLLERS, *EVALUATORS), "strand": EVALUATORS, "cut": _OURS, "ahead": _OURS, "behind": _OURS,
    "expire": (TOKENS, CERTIFICATES, *CONTROLLERS, *PROXIES),
}  # fmt: skip
"""What each kind of fault may befall."""
_EVERY: Final = [(kind, target) for kind, targets in TARGETS.items() for target in targets]
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
    """Faults that are over after `seconds`; they overlap, and one target has one at a time. Each befalls each
    of its targets once before any does twice.
    """
    drawn: list[Fault] = []
    left: list[tuple[str, str]] = []
    at = chance.uniform(*_PAUSES)
    while at < seconds:
        left = left or chance.sample(_EVERY, len(_EVERY))
        length = round(chance.uniform(*_LENGTHS), 2)
        busy = {each.target for each in drawn if each.until > at}
        free = next((each for each in left if each[1] not in busy), None)
        if free is not None and at + length <= seconds:
            drawn.append(Fault(round(at, 2), *free, length))
            left.remove(free)
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
