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
    ("--kubeconfig", "path of a kubeconfig (default $KUBECONFIG, or the pod's account)"),
    ("--namespaces", "namespaces to work in, separated by commas (default all)"),
    ("--storage-path", "folder for artifacts and mirrors (default /data)"),
    ("--host", "address that all ports listen on (default 0.0.0.0)"),
    ("--artifact-port", "port of the artifact server (default 9090; 0 takes a free port)"),
    ("--artifact-address", "host:port under which others reach the artifact server"),
    ("--artifact-tokens-file", "file of bearer tokens that the artifact server accepts, one per line (default: none needed)"),
    ("--artifact-hosts", "hosts that Flux's artifacts may come from, separated by commas (default .svc,.svc.cluster.local)"),
    ("--receiver-port", "port for webhooks (default 9292)"),
    ("--management-port", "port for health, readiness and metrics (default 8014)"),
    ("--namespace", "the controller's own namespace, which holds the Lease (default: the pod's)"),
    ("--lease-name", "Lease that replicas compete for (default flagstaff-controller)"),
    ("--identity", "this replica's name (default $POD_NAME, or host name and process id)"),
    ("--workers", "reconciles at the same time, for each kind and namespace (default 8)"),
    ("--provenance", "full or commit: commit names no author of a commit anywhere (default full)"),
    ("--log-format", "form of the log on standard error: console (default) or json"),
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    running.configure(parser, _OPTIONS, run)
    parser.add_argument(
        "--no-leader-election", dest="leader_election", action="store_false", default=None,
        help="work without a Lease; only where there is one replica",
    )  # fmt: skip
    parser.add_argument(
        "--allow-local", action="store_true", default=None,
        help="allow file:// URLs in FlagSources; unsafe where tenants share a cluster",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Work until SIGTERM or SIGINT; exit codes as `running.run` has them."""
    return running.run("controller", options, partial(running.settings_of, ControllerSettings), _work)


def _work(settings: ControllerSettings) -> Coroutine[Any, Any, None]:
    if settings.kubeconfig:
        # kopf reads the environment alone.
        os.environ["KUBECONFIG"] = settings.kubeconfig
    logging.getLogger("kopf").setLevel(logging.WARNING)
    from controller.wiring.cluster import run_controller

    return run_controller(settings, running.say)
