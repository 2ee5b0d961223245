"""Verbs that run until they are stopped: settings from command line and environment, a loop, an exit code."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from controller.settings import (
    ControllerSettings,
    InvalidSettingError,
    ProxySettings,
    from_env,
    value_of,
)
from evaluator import logs

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine, Sequence

S = TypeVar("S", bound=ControllerSettings | ProxySettings)


def configure(
    parser: argparse.ArgumentParser,
    options: Sequence[tuple[str, str]],
    run: Callable[[argparse.Namespace], int],
) -> None:
    """Declare `options`, each a name and what it says, and what all these verbs take."""
    for name, what in options:
        parser.add_argument(name, default=None, metavar="X", help=what)
    parser.add_argument("--verbose", action="store_true", help="log at level DEBUG")
    parser.set_defaults(run=run)


def settings_of(kind: type[S], options: argparse.Namespace) -> S:
    """The environment's settings under what the command line says. Raises InvalidSettingError."""
    given: dict[str, Any] = {
        each.name: text if isinstance(text, bool) else _value(kind, each.name, text)
        for each in fields(kind)
        if (text := getattr(options, each.name, None)) is not None
    }
    return replace(from_env(kind, os.environ), **given)


def _value(kind: type[S], field_name: str, text: str) -> Any:
    return value_of(kind, field_name, text, f"--{field_name.replace('_', '-')} is")


def run(
    verb: str,
    options: argparse.Namespace,
    read: Callable[[argparse.Namespace], S],
    work: Callable[[S], Coroutine[Any, Any, None]],
) -> int:
    """Do `work` with the settings that `read` finds, until it ends.

    Returns 0; 2 for a setting that cannot be used, 3 for a port, certificate, file or kubeconfig that cannot
    be had.
    """
    try:
        settings = read(options)
    except InvalidSettingError as error:
        return _refused(verb, error, 2)
    logs.configure(settings.log_format, "debug" if options.verbose else "info")
    import uvloop
    from kubernetes.aio.config.config_exception import ConfigException

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work(settings))
    except InvalidSettingError as error:
        return _refused(verb, error, 2)
    except ConfigException as error:
        return _refused(verb, f"{settings.kubeconfig or 'kubeconfig'}: {error}", 3)
    except OSError as error:
        return _refused(verb, error, 3)
    return 0


def say(line: str) -> None:
    """Tell whoever started the process."""
    print(line, flush=True)


def _refused(verb: str, why: object, code: int) -> int:
    print(f"flagstaff {verb}: {why}", file=sys.stderr)
    return code
