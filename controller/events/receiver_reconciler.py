"""Reconciler of FlagReceiver: reads the token, and opens a webhook endpoint on a secret path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api.flagreceiver import FlagReceiverSpec, FlagReceiverStatus
from controller.delivery.object_bounds import RECEIVERS, TOO_MANY_RECEIVERS
from controller.events.receiver_stage import receivers_beside
from controller.events.webhook_server import Endpoint, Endpoints, webhook_path
from controller.runtime.event import Occurrence
from controller.runtime.result import Done, Result, spec_of
from controller.runtime.setbacks import Failed, Setback, Stalled, Waiting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from controller.api.meta import ObjectKey, Resource
    from controller.runtime.cache import Cache

SHORTEST: Final = 16
"""Least bytes of a token: short ones can be found by trial from a path or a signed delivery."""


@dataclass(frozen=True, slots=True)
class FlagReceiverReconciler:
    """Opens and closes the endpoint of each FlagReceiver according to its spec and its Secret."""

    secret: Callable[[str, str], Awaitable[Mapping[str, bytes] | None]]
    """(namespace, name) -> a Secret's content, or None. Raises Failed: the endpoint stays as it is."""
    endpoints: Endpoints
    objects: Cache

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Open the endpoint, or close it if there is no valid token."""
        del now
        try:
            endpoint = await self._endpoint(resource)
        except Failed as failed:
            # The Secret cannot be read now: the endpoint stays as it is.
            return Result.of(failed)
        except Setback as setback:
            self.endpoints.close(resource.key)
            return Result.of(setback, status=FlagReceiverStatus(webhook_path=None))
        self.endpoints.open(endpoint)
        path = webhook_path(endpoint.tokens[0], resource.key)
        moved = FlagReceiverStatus.of(resource).webhook_path not in {None, path}
        events = (Occurrence("PathChanged", f"the token changed: senders must now use {path}"),)
        return Result(
            Done(f"receiver initialized for path: {path}"),
            status=FlagReceiverStatus(webhook_path=path),
            events=events if moved else (),
        )

    def forget(self, key: ObjectKey) -> None:
        """Close its endpoint, and forget its tokens."""
        self.endpoints.close(key)

    async def _endpoint(self, resource: Resource) -> Endpoint:
        """Return the endpoint of spec and Secret. Raises Setback."""
        spec = spec_of(FlagReceiverSpec, resource)
        if RECEIVERS.excludes(resource, receivers_beside(self.objects, resource)):
            remedy = "delete one of them, or name its sources in another"
            raise Stalled(TOO_MANY_RECEIVERS, RECEIVERS.message(resource.namespace, remedy))
        name = spec.secret_ref.name
        return Endpoint(
            key=resource.key,
            sender=spec.type,
            tokens=_tokens(name, await self.secret(resource.namespace, name)),
            events=spec.events,
            sources=tuple(source.name for source in spec.resources),
        )


def _tokens(name: str, secret: Mapping[str, bytes] | None) -> tuple[bytes, ...]:
    """Return the current token, and the previous one if any. Raises Waiting or Stalled."""
    if secret is None:
        raise Waiting("TokenNotFound", f'Secret "{name}" not found; create it with a key "token"')
    # Files end in a line break, and `kubectl create secret --from-file` keeps it; senders have none.
    token, previous = (secret.get(field, b"").rstrip(b"\r\n") for field in ("token", "previousToken"))
    if not token:
        message = f'Secret "{name}" has no key "token"; put the sender\'s secret there'
        raise Stalled("TokenNotFound", message)
    for field, given in (("token", token), ("previousToken", previous)):
        if 0 < len(given) < SHORTEST:
            message = (
                f'key "{field}" of Secret "{name}" has fewer than {SHORTEST} bytes and can be guessed; '
                "put 40 random characters there, such as openssl rand -hex 20 gives, and into the sender"
            )
            raise Stalled("TokenTooShort", message)
    return (token, previous) if previous and previous != token else (token,)
