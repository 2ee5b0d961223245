"""`flagstaff admission`: the webhooks of pods and of flags that are written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.app.settings.process_settings import AdmissionSettings, InvalidSettingError
from controller.cli.shared import running

if TYPE_CHECKING:
    import argparse
    from collections.abc import Coroutine


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    running.configure(parser, AdmissionSettings, run)


def run(options: argparse.Namespace) -> int:
    """Answer until SIGTERM or SIGINT; exit codes as `running.run` has them."""
    return running.run(options, AdmissionSettings, _work)


def _work(settings: AdmissionSettings) -> Coroutine[Any, Any, None]:
    if not (settings.admission_cert and settings.admission_key):
        raise InvalidSettingError(
            "--admission-cert and --admission-key must be given: the API server asks by HTTPS alone; "
            "deploy/components/admission mounts the Secret flagstaff-admission"
        )
    from controller.app.admission_process import run_admission

    return run_admission(settings, running.say)
