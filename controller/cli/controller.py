"""`flagstaff controller`: every reconciler, the artifact server and the webhook receiver."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from controller.settings import ControllerSettings, InvalidSettingError, from_env, value_of
from evaluator import logs

if TYPE_CHECKING:
    import argparse

_OPTIONS = (
    ("--kubeconfig", "a kubeconfig's path (default $KUBECONFIG, or the pod's account)"),
    ("--namespaces", "namespaces to work in, parted by commas (default all)"),
    ("--storage-path", "where artifacts and mirrors are kept (default /data)"),
    ("--host", "address that all ports listen on (default 0.0.0.0)"),
    ("--artifact-port", "the artifact server (default 9090; 0 takes a free port)"),
    ("--artifact-address", "host:port under which others reach the artifact server"),
    ("--artifact-tokens-file", "bearer tokens that the artifact server accepts, one a line (default: it asks for none)"),
    ("--artifact-hosts", "hosts that artifacts of Flux's sources may come from, parted by commas: name, name:port or .ending (default .svc,.svc.cluster.local)"),
    ("--receiver-port", "webhooks (default 9292)"),
    ("--management-port", "health, readiness and metrics (default 8014)"),
    ("--namespace", "our own namespace, of the Lease (default: the pod's)"),
    ("--lease-name", "the Lease among replicas (default flagstaff-controller)"),
    ("--identity", "our name among replicas (default $POD_NAME, or the host's and the process')"),
    ("--workers", "reconciles at a time, by kind (default 8)"),
    ("--log-format", "console or json: one line an event on standard error (default console)"),
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    for name, what in _OPTIONS:
        parser.add_argument(name, default=None, metavar="X", help=what)
    parser.add_argument(
        "--no-leader-election", dest="leader_election", action="store_false", default=None,
        help="work without asking for the Lease: where there is one replica",
    )  # fmt: skip
    parser.add_argument(
        "--allow-local", action="store_true", default=None,
        help="let FlagSources name folders of this machine (file://); never where tenants share a cluster",
    )  # fmt: skip
    parser.add_argument("--verbose", action="store_true", help="log at level DEBUG")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Work until SIGTERM or SIGINT; 2 for a setting that cannot be used, 3 for a port, kubeconfig or file that cannot be had."""
    try:
        settings = _settings(options)
    except InvalidSettingError as error:
        print(f"flagstaff controller: {error}", file=sys.stderr)
        return 2
    if settings.kubeconfig:
        # kopf reads the environment alone.
        os.environ["KUBECONFIG"] = settings.kubeconfig
    logs.configure(settings.log_format, "debug" if options.verbose else "info")
    logging.getLogger("kopf").setLevel(logging.WARNING)
    import uvloop
    from kubernetes.aio.config.config_exception import ConfigException

    from controller.wiring.cluster import run_controller

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_controller(settings, _say))
    except InvalidSettingError as error:
        print(f"flagstaff controller: {error}", file=sys.stderr)
        return 2
    except ConfigException as error:
        print(
            f"flagstaff controller: {settings.kubeconfig or 'kubeconfig'}: {error}", file=sys.stderr
        )
        return 3
    except OSError as error:
        print(f"flagstaff controller: {error}", file=sys.stderr)
        return 3
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


def _settings(options: argparse.Namespace) -> ControllerSettings:
    """The environment's settings under what the command line says. Raises InvalidSettingError."""
    given: dict[str, Any] = {
        each.name: text if isinstance(text, bool) else _value(each.name, text)
        for each in fields(ControllerSettings)
        if (text := getattr(options, each.name, None)) is not None
    }
    return replace(from_env(ControllerSettings, os.environ), **given)


def _value(field_name: str, text: str) -> Any:
    return value_of(ControllerSettings, field_name, text, f"--{field_name.replace('_', '-')} is")
