"""Verbs that run until they are stopped: `flagstaff controller`, `admission`, `proxy` and `page`."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from controller.app.settings import (
    AdmissionSettings,
    ControllerSettings,
    InvalidOptionError,
    PageSettings,
    ProxySettings,
    proxy_logs_debug,
    settings_of,
)
from controller.cli.printing import OK, UNREACHABLE, USAGE, Exit, exit_on
from evaluator.host import logs

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine

    from pydantic.fields import FieldInfo


_YOUNG: Final = 5_000
"""Objects that are allocated, and not freed, until the collector looks at the youngest. With Python's 700
that took a tenth of the CPU time of 1,000 new sources and sets, in which it finds next to nothing.
"""
S = TypeVar("S", bound=AdmissionSettings | ControllerSettings | PageSettings | ProxySettings)


def configure_process(
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
    if field.default_factory is not None or not shown or field.default is None:
        return str(field.description)
    return f"{field.description} (default {shown})"


def settings(kind: type[S], options: argparse.Namespace) -> S:
    """The environment's settings under what the command line says. Raises InvalidSettingError."""
    given = {name: getattr(options, name, None) for name in kind.model_fields}
    return settings_of(kind, **{name: value for name, value in given.items() if value is not None})


def run_process(
    options: argparse.Namespace, kind: type[S], work: Callable[[S], Coroutine[Any, Any, None]]
) -> int:
    """Do `work` with the settings of this kind until it ends. `work` may raise InvalidSettingError, too.

    Returns 0. Ends with 2 for a setting that cannot be used, with 3 for a port, certificate, file or
    kubeconfig that cannot be had.
    """
    with exit_on(USAGE, InvalidOptionError):
        configured = settings(kind, options)
    logs.configure(configured.log_format, "debug" if options.verbose else "info")
    # What modules make stays: collecting it while they load is a seventh of the start.
    gc.disable()
    import uvloop
    from kubernetes.aio.config.config_exception import ConfigException

    try:
        with exit_on(USAGE, InvalidOptionError), exit_on(UNREACHABLE, OSError):
            try:
                working = work(configured)
            finally:
                # A full collection that looks at what is imported by now holds the loop, and comes only once
                # a quarter as much is new.
                gc.freeze()
                gc.set_threshold(_YOUNG, 5, 5)
                gc.enable()
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(working)
    except ConfigException as error:
        raise Exit(f"cannot find a cluster: {error}") from error
    return OK


def say(line: str) -> None:
    """Print a line for the user who started the process."""
    print(line, flush=True)


def configure_admission(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    configure_process(parser, AdmissionSettings, run_admission)


def run_admission(options: argparse.Namespace) -> int:
    """Answer until SIGTERM or SIGINT; exit codes as `running.run` has them."""
    return run_process(options, AdmissionSettings, _serve_admission)


def _serve_admission(settings: AdmissionSettings) -> Coroutine[Any, Any, None]:
    if not (settings.admission_cert and settings.admission_key):
        raise InvalidOptionError(
            "--admission-cert and --admission-key must be given: the API server asks by HTTPS alone; "
            "deploy/components/admission mounts the Secret flagstaff-admission"
        )
    from controller.app.admission_process import run_admission

    return run_admission(settings, say)


def configure_controller(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    configure_process(parser, ControllerSettings, run_controller)


def run_controller(options: argparse.Namespace) -> int:
    """Work until SIGTERM or SIGINT; exit codes as `running.run` has them."""
    return run_process(options, ControllerSettings, _control)


def _control(settings: ControllerSettings) -> Coroutine[Any, Any, None]:
    if settings.kubeconfig:
        # kopf reads the environment alone.
        os.environ["KUBECONFIG"] = settings.kubeconfig
    logging.getLogger("kopf").setLevel(logging.WARNING)
    from controller.app.controller_process import run_controller

    return run_controller(settings, say)


def configure_page(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "--open", action="store_true",
        help="show it on this machine alone, with the rights of the kubeconfig, and open the browser",
    )  # fmt: skip
    parser.add_argument(
        "--context",
        metavar="NAME",
        help="with --open, a context of the kubeconfig (default: its current one)",
    )
    configure_process(parser, PageSettings, run_page)


def run_page(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; exit codes as `running.run` has them."""
    return run_process(options, PageSettings, partial(_serve_page, options))


def _serve_page(options: argparse.Namespace, settings: PageSettings) -> Coroutine[Any, Any, None]:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise InvalidOptionError("--tls-cert and --tls-key must be given together")
    if settings.tls_client_ca and not settings.tls_cert:
        raise InvalidOptionError("--tls-client-ca needs --tls-cert and --tls-key")
    if settings.proxies and not settings.proxies.rpartition(":")[2].isdecimal():
        raise InvalidOptionError(f"--proxies is {settings.proxies!r}: write host:port")
    if options.context and not options.open:
        raise InvalidOptionError("--context needs --open")
    if options.open:
        from controller.app.page_process import run_own_page

        return run_own_page(settings, options.context, say)
    from controller.app.page_process import run_page

    return run_page(settings, say)


def configure_proxy(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    configure_process(parser, ProxySettings, run_proxy)
    parser.set_defaults(verbose=proxy_logs_debug())


def run_proxy(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; exit codes as `running.run` has them."""
    return run_process(options, ProxySettings, _serve_proxy)


def _serve_proxy(settings: ProxySettings) -> Coroutine[Any, Any, None]:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise InvalidOptionError("--tls-cert and --tls-key must be given together")
    if settings.tls_client_ca and not settings.tls_cert:
        raise InvalidOptionError("--tls-client-ca needs --tls-cert and --tls-key")
    from controller.app.proxy_process import run_proxy

    # Each subscriber is a connection; a shell's usual 1024 would be the real limit.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return run_proxy(settings, say)
