"""`flagstaff controller`: every reconciler, the artifact server and the webhook receiver."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from controller.settings import InvalidSettingError, from_env

if TYPE_CHECKING:
    import argparse

    from controller.settings import ControllerSettings


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    for name, kind, what in (
        ("--kubeconfig", str, "a kubeconfig's path (default $KUBECONFIG, or the pod's account)"),
        ("--namespaces", str, "namespaces to work in, parted by commas (default all)"),
        ("--storage-path", Path, "where artifacts and mirrors are kept (default /data)"),
        ("--host", str, "address that all ports listen on (default 0.0.0.0)"),
        ("--artifact-port", int, "the artifact server (default 9090; 0 takes a free port)"),
        ("--artifact-address", str, "host:port under which others reach the artifact server"),
        ("--receiver-port", int, "webhooks (default 9292)"),
        ("--management-port", int, "health, readiness and metrics (default 8014)"),
        ("--namespace", str, "our own namespace, of the Lease (default: the pod's)"),
        ("--lease-name", str, "the Lease among replicas (default flagstaff-controller)"),
        ("--identity", str, "our name among replicas (default $POD_NAME, or the host's)"),
        ("--workers", int, "reconciles at a time, by kind (default 8)"),
    ):
        parser.add_argument(name, type=kind, default=None, metavar="X", help=what)
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
    """Work until SIGTERM or SIGINT; 2 for a setting that cannot be used, 3 where the cluster cannot be reached at all."""
    try:
        settings = _settings(options)
    except InvalidSettingError as error:
        print(f"flagstaff controller: {error}", file=sys.stderr)
        return 2
    if settings.kubeconfig:
        # kopf reads the environment alone.
        os.environ["KUBECONFIG"] = settings.kubeconfig
    logging.basicConfig(
        level=logging.DEBUG if options.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("kopf").setLevel(logging.WARNING)
    import uvloop

    from controller.wiring.cluster import run_controller

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_controller(settings, _say))
    except OSError as error:
        print(f"flagstaff controller: {error}", file=sys.stderr)
        return 3
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


def _settings(options: argparse.Namespace) -> ControllerSettings:
    """The environment's settings under what the command line says."""
    found = from_env(os.environ)
    given = {
        name: value
        for name, value in vars(options).items()
        if value is not None and hasattr(found, name)
    }
    if "namespaces" in given:
        given["namespaces"] = tuple(filter(None, given["namespaces"].split(",")))
    return replace(found, **given)
