"""`flagstaff page`: the page of a cluster, in the cluster or on this machine."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from controller.app.settings.process_settings import InvalidSettingError, PageSettings
from controller.cli.shared import running

if TYPE_CHECKING:
    import argparse
    from collections.abc import Coroutine


def configure(parser: argparse.ArgumentParser) -> None:
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
    running.configure(parser, PageSettings, run)


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; exit codes as `running.run` has them."""
    return running.run(options, PageSettings, partial(_work, options))


def _work(options: argparse.Namespace, settings: PageSettings) -> Coroutine[Any, Any, None]:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise InvalidSettingError("--tls-cert and --tls-key must be given together")
    if settings.tls_client_ca and not settings.tls_cert:
        raise InvalidSettingError("--tls-client-ca needs --tls-cert and --tls-key")
    if settings.proxies and not settings.proxies.rpartition(":")[2].isdecimal():
        raise InvalidSettingError(f"--proxies is {settings.proxies!r}: write host:port")
    if options.context and not options.open:
        raise InvalidSettingError("--context needs --open")
    if options.open:
        from controller.app.page.own_page import run_own_page

        return run_own_page(settings, options.context, running.say)
    from controller.app.page.page_process import run_page

    return run_page(settings, running.say)
