"""What became of a request: the state that was reached, or what is waited for. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effect:
    """What became of a request."""

    message: str
    """The state that was reached, or what is waited for, in one line."""
    done: bool = True
    blocked: bool = False
    """Whether it comes no further until a person changes something."""
    waits_for: tuple[str, ...] = ()
    """The evaluators that do not serve it, as far as proxies name them."""
