"""The server of a remote provider, and the login there, as its Secret has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from controller.api.objects.fields import LocalReference
from controller.api.remote_provider import FIELD
from controller.runtime.reconciling.setbacks import Stalled
from controller.runtime.user_text.secret_texts import Tls

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from controller.delivery.remote_answers import RemoteRequest
    from controller.sources.secrets import Secrets

_FIELD: Final = f"spec.{FIELD}.credentials.secret"


class Login(NamedTuple):
    """What is shown to a server, and whom it may trust."""

    token: str = ""
    """Empty: none is sent."""
    tls: Tls = Tls()


ANONYMOUS: Final = Login()


def split_url(request: RemoteRequest) -> SplitResult:
    """Split the provider's URL. Raises Stalled for brackets around no address, and for another port."""
    try:
        parts = urlsplit(request.spec.url or "")
        _ = parts.port
    except ValueError:
        todo = "the host must be a name or an address, and the port from 1 to 65535; correct url"
        raise Stalled("URLInvalid", todo) from None
    return parts


async def login_of(request: RemoteRequest, secrets: Secrets, host: str) -> Login:
    """Read the login for `host`. Raises Failed where the Secret does not exist, Stalled where its key does
    not, or where the Secret is not for this host.
    """
    credentials = request.spec.credentials
    if credentials is None:
        return ANONYMOUS
    secret = await secrets.require(LocalReference(name=credentials.secret), request, _FIELD)
    secret.require_host(host)
    tls, key = secret.tls(), credentials.key
    token = secret.line(key)
    if not token and not tls.certificate:
        token = secret.require(key, "as the bearer token; name another one in credentials.key")
    return Login(token, tls)
