"""Who asks for the page, and what that caller may see: by a bearer token in the cluster."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from controller.page.rendering import page
from controller.proxy.access.tokens import bearer, seconds_left
from controller.runtime.reconciling.setbacks import Failed
from evaluator.http.messages import Call, host_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.app.page.cluster_views import ClusterViews
    from controller.page.page_source import PageSource
    from controller.proxy.access.access import AccessReviews
    from controller.proxy.access.users import User
    from evaluator.http.messages import Request, Response

EVERYWHERE: Final = ("", "")
"""The right to get flag sets of all namespaces."""
_MOST_READERS: Final = 10_000
UNNAMED: Final = (
    "This page needs the token of a user of the cluster, in the header Authorization: Bearer. "
    "A login proxy in front of it sends one; open the page at the proxy's address."
)
EXPIRED: Final = "Your token has expired. Log in again, and load this page anew."
REFUSED: Final = (
    "The cluster does not accept your token. Log in again; if that does not help, ask whether the API server "
    "trusts the issuer of your login."
)
UNKNOWN: Final = "The API server does not answer at the moment, so nobody can be identified. Try again soon."


@dataclass(frozen=True, slots=True)
class TokenCallers:
    """Callers are users of the cluster: a TokenReview names a user, SubjectAccessReviews what it may see."""

    access: AccessReviews
    """Reviews of tokens, and of the right to get flag sets of a namespace."""
    views: ClusterViews
    unix_time: Callable[[], float]
    _seen: LRUCache[str, frozenset[str] | None] = field(
        default_factory=lambda: LRUCache(_MOST_READERS), init=False
    )
    """The namespaces of each reader, as of the last view."""

    async def source_for(self, request: Request) -> PageSource | Response:
        """What the sender of a request may see, or a refusal."""
        token = bearer(_call(request))
        if token is None:
            return refusal(401, "Not logged in", UNNAMED)
        try:
            user = await self.access.user(token, host_of(request.peer))
            if user is None:
                expired = seconds_left(token, self.unix_time(), unlimited=1.0) <= 0
                return refusal(401, "Not logged in", EXPIRED if expired else REFUSED)
            namespaces = await self._namespaces(user)
        except Failed:
            return refusal(503, "Not available", UNKNOWN)
        self._seen[user.reader] = namespaces
        return await self.views.show(request, namespaces)

    def changes_for(self, request: Request) -> Callable[[], str] | Response:
        """The version of what the sender of a request was shown last, or a refusal: a page asks for changes
        after its view was made. Rights are reviewed with each view.
        """
        user = self.access.last_known(_call(request))
        if user is None or user.reader not in self._seen:
            return refusal(401, "Not logged in", REFUSED)
        namespaces = self._seen[user.reader]
        return lambda: self.views.objects.version(namespaces)

    def reader_of(self, request: Request) -> str:
        """The reader that sends a request; empty: its token was not reviewed yet, or is refused."""
        user = self.access.last_known(_call(request))
        return "" if user is None else user.reader

    async def _namespaces(self, user: User) -> frozenset[str] | None:
        """The namespaces with flag sets that a user may see; None: all. Raises Failed."""
        if await self.access.may_read(user, EVERYWHERE):
            return None
        names = sorted(self.views.objects.namespaces())
        allowed = await asyncio.gather(*(self.access.may_read(user, (name, "")) for name in names))
        return frozenset(name for name, allows in zip(names, allowed, strict=True) if allows)


def refusal(status: int, title: str, message: str) -> Response:
    """A page that says in plain words why nothing is shown."""
    response = page("refused.html", status, title=title, message=message)
    asks = (("www-authenticate", "Bearer"),) if status == 401 else ()
    return response._replace(headers=(*response.headers, *asks))


def _call(request: Request) -> Call:
    return Call(request.path, request.headers, request.peer)
