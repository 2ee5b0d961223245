"""FlagReceiver: a token is read, and a path that nobody can guess is answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api.fields import InvalidSpecError, read
from controller.api.receiver import FlagReceiverSpec
from controller.receiver.endpoints import Endpoint, Endpoints, webhook_path
from controller.runtime.news import News
from controller.runtime.setbacks import Stalled, Waiting
from controller.runtime.settle import Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from controller.api.meta import ObjectKey, Resource

TODAY: Final = "token"
BEFORE: Final = "previousToken"
"""Keys of the Secret."""
_NO_PATH: Final = {"webhookPath": None}


@dataclass(frozen=True, slots=True)
class FlagReceiverReconciler:
    """Keeps the endpoint of each FlagReceiver as its spec and its Secret say."""

    secret: Callable[[str, str], Awaitable[Mapping[str, bytes] | None]]
    """(namespace, name) -> a Secret's content, or None. Raises Setback: what was answered before still is."""
    endpoints: Endpoints

    async def reconcile(self, resource: Resource, now: datetime) -> Outcome:
        """Open the endpoint. Raises Stalled or Waiting, having closed it, where there is no token
        to believe.
        """
        _ = now
        try:
            spec = read(FlagReceiverSpec, resource.spec)
        except InvalidSpecError as error:
            self.endpoints.close(resource.key)
            raise Stalled("InvalidSpec", str(error), status=_NO_PATH) from error
        tokens = self._tokens(resource, spec, await self.secret(resource.namespace, spec.secret_ref.name))
        self.endpoints.open(
            Endpoint(
                key=resource.key,
                sender=spec.type,
                tokens=tokens,
                events=spec.events,
                sources=tuple(each.name for each in spec.resources),
            )
        )
        path = webhook_path(tokens[0], resource.key)
        message = f"receiver initialized for path: {path}"
        moved = resource.status.get("webhookPath") not in {None, path}
        news = (News("PathChanged", f"the token changed: senders must now use {path} now"),)
        return Outcome(message, status={"webhookPath": path}, news=news if moved else ())

    def forget(self, key: ObjectKey) -> None:
        """Its tokens go with it."""
        self.endpoints.close(key)

    def _tokens(
        self, resource: Resource, spec: FlagReceiverSpec, secret: Mapping[str, bytes] | None
    ) -> tuple[bytes, ...]:
        name = spec.secret_ref.name
        if secret is None:
            self.endpoints.close(resource.key)
            message = f'Secret "{name}" not found; create it with a key "{TODAY}"'
            raise Waiting("TokenNotFound", message, status=_NO_PATH)
        # Files end in a line break, and `kubectl create secret --from-file` keeps it; senders have none.
        token, previous = (secret.get(field, b"").rstrip(b"\r\n") for field in (TODAY, BEFORE))
        if not token:
            self.endpoints.close(resource.key)
            message = f'Secret "{name}" has no key "{TODAY}"; put the sender\'s secret there'
            raise Stalled("TokenNotFound", message, status=_NO_PATH)
        return (token, previous) if previous and previous != token else (token,)
