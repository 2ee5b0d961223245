"""`flagstaff proxy`: FeatureFlagConfigurations to any number of subscribers."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Any

from controller.cli import running
from controller.settings import InvalidSettingError, ProxySettings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Coroutine

_OPTIONS = (
    ("--kubeconfig", "a kubeconfig's path (default $KUBECONFIG, or the pod's account)"),
    ("--namespaces", "namespaces whose flags are served, parted by commas (default all)"),
    ("--host", "address that all ports listen on (default 0.0.0.0)"),
    ("--sync-port", "flagd.sync.v1 and receipts (default 8015; 0 takes a free port)"),
    ("--management-port", "health, readiness and metrics (default 8014)"),
    ("--tls-cert", "PEM certificate of the sync port, re-read when it changes (default: plain text)"),
    ("--tls-key", "its private key"),
    ("--tls-client-ca", "CAs that clients' certificates must come from (default: none is asked for)"),
    ("--auth", "off, warn or enforce (default warn)"),
    ("--auth-audiences", "audiences of which tokens must name one, parted by commas (default flagstaff-proxy)"),
    ("--context", "JSON object that in-process providers lay over evaluation contexts"),
    ("--max-streams", "open streams of all subscribers together (default 20000)"),
    ("--max-streams-per-host", "open streams from one address (default 20000)"),
    ("--stream-seconds", "a stream ends after so long (default 0, never; with enforce 3600)"),
    ("--drain-delay", "seconds from not ready to sending subscribers elsewhere (default 3)"),
    ("--drain-seconds", "over how long subscribers are sent elsewhere (default 10)"),
    ("--namespace", "our own namespace (default: the pod's)"),
    ("--identity", "our name among replicas (default $POD_NAME, or the host's)"),
    ("--log-format", "console or json: one line an event on standard error (default console)"),
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    running.configure(parser, _OPTIONS, run)


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; exit codes as `running.run` has them."""
    return running.run("proxy", options, settings_of, _work)


def _work(settings: ProxySettings) -> Coroutine[Any, Any, None]:
    from controller.wiring.proxy import run_proxy

    # Each subscriber is a connection; a shell's usual 1024 would be the real limit.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return run_proxy(settings, running.say)


def settings_of(options: argparse.Namespace) -> ProxySettings:
    """The environment's settings under what the command line says. Raises InvalidSettingError."""
    settings = running.settings_of(ProxySettings, options)
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise InvalidSettingError("--tls-cert and --tls-key are given together or not at all")
    if settings.tls_client_ca and not settings.tls_cert:
        raise InvalidSettingError("--tls-client-ca needs --tls-cert and --tls-key")
    return settings
