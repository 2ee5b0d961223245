"""`flagstaff controller`: every reconciler, the artifact server and the webhook receiver."""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from controller.cli import running
from controller.settings import ControllerSettings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Coroutine

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
    ("--workers", "reconciles at a time, by kind and namespace (default 8)"),
    ("--log-format", "console or json: one line an event on standard error (default console)"),
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    running.configure(parser, _OPTIONS, run)
    parser.add_argument(
        "--no-leader-election", dest="leader_election", action="store_false", default=None,
        help="work without asking for the Lease: where there is one replica",
    )  # fmt: skip
    parser.add_argument(
        "--allow-local", action="store_true", default=None,
        help="let FlagSources name folders of this machine (file://); never where tenants share a cluster",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Work until SIGTERM or SIGINT; exit codes as `running.run` has them."""
    return running.run(
        "controller", options, partial(running.settings_of, ControllerSettings), _work
    )


def _work(settings: ControllerSettings) -> Coroutine[Any, Any, None]:
    if settings.kubeconfig:
        # kopf reads the environment alone.
        os.environ["KUBECONFIG"] = settings.kubeconfig
    logging.getLogger("kopf").setLevel(logging.WARNING)
    from controller.wiring.cluster import run_controller

    return run_controller(settings, running.say)
