"""`flagstaff controller`: every reconciler, the artifact server and the webhook receiver."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from controller.app.settings.process_settings import ControllerSettings
from controller.cli.shared import running

if TYPE_CHECKING:
    import argparse
    from collections.abc import Coroutine


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    running.configure(parser, ControllerSettings, run)


def run(options: argparse.Namespace) -> int:
    """Work until SIGTERM or SIGINT; exit codes as `running.run` has them."""
    return running.run(options, ControllerSettings, _work)


def _work(settings: ControllerSettings) -> Coroutine[Any, Any, None]:
    if settings.kubeconfig:
        # kopf reads the environment alone.
        os.environ["KUBECONFIG"] = settings.kubeconfig
    logging.getLogger("kopf").setLevel(logging.WARNING)
    from controller.app.controller_process import run_controller

    return run_controller(settings, running.say)
