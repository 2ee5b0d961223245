"""Verbs that run until they are stopped: settings from command line and environment, a loop, an exit code."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any, TypeVar

from controller.app.settings.process_settings import (
    AdmissionSettings,
    ControllerSettings,
    InvalidSettingError,
    PageSettings,
    ProxySettings,
    settings_of,
)
from controller.cli.shared.ending import OK, UNREACHABLE, USAGE, Exit, exit_on
from evaluator.host import logs

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine

    from pydantic.fields import FieldInfo

S = TypeVar("S", bound=AdmissionSettings | ControllerSettings | PageSettings | ProxySettings)


def configure(
    parser: argparse.ArgumentParser, kind: type[S], run: Callable[[argparse.Namespace], int]
) -> None:
    """Declare an option for each field of `kind` that is described, and what all these verbs take."""
    for name, field in kind.model_fields.items():
        if field.description is None:
            continue
        option = name.replace("_", "-")
        if field.annotation is bool:
            # The command line can only change the default.
            flag, action = (
                ("--no-" + option, "store_false") if field.default else ("--" + option, "store_true")
            )
            parser.add_argument(flag, dest=name, action=action, default=None, help=field.description)
        else:
            parser.add_argument("--" + option, metavar="X", help=_describe(field))
    parser.add_argument("--verbose", action="store_true", help="log at level DEBUG")
    parser.set_defaults(run=run)


def _describe(field: FieldInfo) -> str:
    shown = ",".join(field.default) if isinstance(field.default, tuple) else str(field.default)
    if field.default_factory is not None or not shown:
        return str(field.description)
    return f"{field.description} (default {shown})"


def settings(kind: type[S], options: argparse.Namespace) -> S:
    """The environment's settings under what the command line says. Raises InvalidSettingError."""
    given = {name: getattr(options, name, None) for name in kind.model_fields}
    return settings_of(kind, **{name: value for name, value in given.items() if value is not None})


def run(options: argparse.Namespace, kind: type[S], work: Callable[[S], Coroutine[Any, Any, None]]) -> int:
    """Do `work` with the settings of this kind until it ends. `work` may raise InvalidSettingError, too.

    Returns 0. Ends with 2 for a setting that cannot be used, with 3 for a port, certificate, file or
    kubeconfig that cannot be had.
    """
    with exit_on(USAGE, InvalidSettingError):
        configured = settings(kind, options)
    logs.configure(configured.log_format, "debug" if options.verbose else "info")
    # What modules make stays: collecting it while they load is a seventh of the start.
    gc.disable()
    import uvloop
    from kubernetes.aio.config.config_exception import ConfigException

    try:
        with exit_on(USAGE, InvalidSettingError), exit_on(UNREACHABLE, OSError):
            try:
                working = work(configured)
            finally:
                # A full collection that looks at what is imported by now holds the loop, and comes only once
                # a quarter as much is new.
                gc.freeze()
                gc.enable()
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(working)
    except ConfigException as error:
        raise Exit(f"cannot find a cluster: {error}") from error
    return OK


def say(line: str) -> None:
    """Print a line for the user who started the process."""
    print(line, flush=True)
