"""`flagstaff controller` that is killed at one step of its work: `python -m tests.cluster.dying STEP
controller …`.

STEP is `module:Class.method:before` or `…:after`, and `:Kind` behind it where only that kind's objects count;
several, with commas between them, kill at whichever is first. The kill is SIGKILL, so nothing is tidied up.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from controller.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.api.meta import Resource


def die_at(step: str) -> None:
    """Put the kill around the method that `step` names."""
    module, path, when, *kinds = step.split(":")
    name, method = path.split(".")
    owner = getattr(importlib.import_module(module), name)
    setattr(owner, method, _die_around(getattr(owner, method), when, kinds))


def _die_around(method: Callable[..., Any], when: str, kinds: list[str]) -> Callable[..., Any]:
    def die(now: str, arguments: tuple[Any, ...]) -> None:
        if now == when and (not kinds or _kind(arguments[1]) in kinds):
            os.kill(os.getpid(), signal.SIGKILL)

    @functools.wraps(method)
    def plain(*arguments: Any, **named: Any) -> Any:
        die("before", arguments)
        result = method(*arguments, **named)
        die("after", arguments)
        return result

    @functools.wraps(method)
    async def call_and_die(*arguments: Any, **named: Any) -> Any:
        die("before", arguments)
        result = await method(*arguments, **named)
        die("after", arguments)
        return result

    return call_and_die if inspect.iscoroutinefunction(method) else plain


def _kind(written: Resource | dict[str, Any]) -> str:
    return str(written["kind"]) if isinstance(written, dict) else written.key.kind


if __name__ == "__main__":
    for step in sys.argv[1].split(","):
        die_at(step)
    sys.exit(main(sys.argv[2:]))
