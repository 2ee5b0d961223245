"""Connects what rollouts ask: metric servers, and webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.app.allowed_hosts import rollout_hosts_of
from controller.rollouts.analysis.allowed_servers import AllowedServers
from controller.rollouts.analysis.metric_checks import MetricChecks
from controller.rollouts.analysis.webhook_calls import WebhookCalls
from controller.runtime.network.http_client import HttpClient
from controller.runtime.tenancy.places import Places

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack

    from controller.app.settings.process_settings import ControllerSettings
    from controller.kube.accounts import Accounts
    from controller.rollouts.analysis.rollout_ports import Checks, Hooks
    from controller.runtime.objects.cache import Cache

AT_ONCE: Final = 128
"""Requests at a time; one namespace has half of them at most."""


@dataclass(frozen=True, slots=True)
class RolloutChecks:
    """What rollouts ask."""

    checks: Checks
    hooks: Hooks


def open_rollout_checks(
    stack: AsyncExitStack,
    settings: ControllerSettings,
    accounts: Accounts,
    objects: Cache,
    count: Callable[[str], None],
) -> RolloutChecks:
    """Connect the parts; `stack` closes them. `count`: counts a check by its verdict."""
    hosts = rollout_hosts_of(settings, accounts.cluster.server)
    client = HttpClient(hosts, Places(AT_ONCE, AT_ONCE, resource="rollout requests"), system_proxies=True)
    stack.push_async_callback(client.close)
    servers = AllowedServers(client, accounts.secret, allow_local=bool(settings.rollout_hosts))
    return RolloutChecks(MetricChecks(objects, servers, count), WebhookCalls(servers))
