"""Asks the webhooks of rollouts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from controller.rollouts.analysis.allowed_servers import Exchange
from controller.rollouts.analysis.metric_requests import authorization_of
from controller.rollouts.analysis.readings import UnusableError
from controller.rollouts.analysis.rollout_ports import HookAnswer
from controller.runtime.reconciling.setbacks import Setback

if TYPE_CHECKING:
    from controller.api.rollouts.rollout_analysis import Webhook
    from controller.rollouts.analysis.allowed_servers import AllowedServers
    from controller.rollouts.analysis.rollout_ports import HookCall


@dataclass(frozen=True, slots=True)
class WebhookCalls:
    """The webhooks of all rollouts; see the port Hooks."""

    servers: AllowedServers

    async def ask(self, hook: Webhook, call: HookCall) -> HookAnswer:
        """See Hooks."""
        namespace = call.rollout.namespace
        headers = {"Content-Type": "application/json"}
        try:
            secret = await self.servers.texts(namespace, hook.secret_ref, hook.url, "secretRef")
            if secret is not None:
                headers["Authorization"] = authorization_of(secret)
        except (UnusableError, Setback) as error:
            return HookAnswer("Error", str(error))
        body = payload_of(hook, call)
        exchange = Exchange("POST", hook.url, headers, body, seconds=hook.timeout, whole=False)
        message = ""
        for _ in range(1 + hook.retries):
            try:
                status, _ = await self.servers.send(namespace, exchange)
            except UnusableError as error:
                message = str(error)
            else:
                return _answer(urlsplit(hook.url).hostname or "", status)
        return HookAnswer("Error", message)


def payload_of(hook: Webhook, call: HookCall) -> bytes:
    """Return the JSON that a webhook is sent: Flagger's fields, and where the rollout is."""
    return json.dumps(
        {
            "name": call.rollout.name,
            "namespace": call.rollout.namespace,
            "phase": call.phase,
            "checksum": call.checksum,
            "step": call.step,
            "share": call.share,
            "flags": list(call.flags),
            "webhook": hook.name,
            "type": hook.type,
            "metadata": hook.metadata,
        }
    ).encode()


def _answer(host: str, status: int) -> HookAnswer:
    message = f"{host} answers {status}"
    if 200 <= status < 300:
        return HookAnswer("Pass", message)
    if status >= 500:
        return HookAnswer("Error", message)
    return HookAnswer("Fail", message)
