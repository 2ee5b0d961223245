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
    ("--kubeconfig", "path of a kubeconfig (default $KUBECONFIG, or the pod's account)"),
    ("--namespaces", "namespaces whose flags are served, separated by commas (default all)"),
    ("--host", "address that all ports listen on (default 0.0.0.0)"),
    ("--sync-port", "port for flagd.sync.v1 and receipts (default 8015; 0 takes a free port)"),
    ("--management-port", "port for health, readiness and metrics (default 8014)"),
    ("--tls-cert", "PEM certificate of the sync port, read again when it changes (default: plain text)"),
    ("--tls-key", "private key of --tls-cert"),
    ("--tls-client-ca", "CAs that must have issued clients' certificates (default: none needed)"),
    ("--auth", "what to do with subscribers that may not read: off, warn or enforce (default warn)"),
    ("--auth-audiences", "audiences, separated by commas, one of which a token must name (default flagstaff-proxy)"),
    ("--context", "JSON object that in-process providers merge into every evaluation context"),
    ("--max-streams", "most open streams (default 20000)"),
    ("--max-streams-per-host", "most open streams from one address (default 20000)"),
    ("--stream-seconds", "seconds after which a stream ends (default 0, never; 3600 with --auth enforce)"),
    ("--drain-delay", "at shutdown, seconds between not ready and disconnecting subscribers (default 3)"),
    ("--drain-seconds", "at shutdown, seconds over which subscribers are disconnected (default 10)"),
    ("--namespace", "the proxy's own namespace (default: the pod's)"),
    ("--identity", "this replica's name (default $POD_NAME, or the host name)"),
    ("--log-format", "form of the log on standard error: console (default) or json"),
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
        raise InvalidSettingError("--tls-cert and --tls-key must be given together")
    if settings.tls_client_ca and not settings.tls_cert:
        raise InvalidSettingError("--tls-client-ca needs --tls-cert and --tls-key")
    return settings
