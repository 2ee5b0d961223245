"""`flagstaff proxy`: FeatureFlagConfigurations to any number of subscribers."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Any

from controller.app.settings.process_settings import InvalidSettingError, ProxySettings, proxy_logs_debug
from controller.cli.shared import running

if TYPE_CHECKING:
    import argparse
    from collections.abc import Coroutine


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    running.configure(parser, ProxySettings, run)
    parser.set_defaults(verbose=proxy_logs_debug())


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; exit codes as `running.run` has them."""
    return running.run(options, ProxySettings, _work)


def _work(settings: ProxySettings) -> Coroutine[Any, Any, None]:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise InvalidSettingError("--tls-cert and --tls-key must be given together")
    if settings.tls_client_ca and not settings.tls_cert:
        raise InvalidSettingError("--tls-client-ca needs --tls-cert and --tls-key")
    from controller.app.proxy_process import run_proxy

    # Each subscriber is a connection; a shell's usual 1024 would be the real limit.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return run_proxy(settings, running.say)
