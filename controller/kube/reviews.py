"""TokenReview and SubjectAccessReview: checks a token, and its user's right to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import FEATURE_FLAG_CONFIGURATION
from controller.proxy.users import User, as_extra
from controller.runtime.setbacks import Failed

if TYPE_CHECKING:
    from controller.api.kind import ResourceType
    from controller.kube.client import Cluster

_TOKENS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True)
class ClusterReviews:
    """Implements `controller.proxy.users.Reviews`."""

    cluster: Cluster
    audiences: tuple[str, ...] = ()
    """A token must be for one of these; none: for the API server's own."""
    reads: ResourceType = FEATURE_FLAG_CONFIGURATION
    """The kind that `may_read` is about."""

    async def user(self, token: str) -> User | None:
        """Return the user of a token, or None if it is not valid. Raises Failed."""
        spec: dict[str, Any] = {"token": token}
        if self.audiences:
            spec["audiences"] = list(self.audiences)
        status = await self._ask(_TOKENS, "authentication.k8s.io/v1", "TokenReview", spec)
        if status.get("error") and not status.get("authenticated"):
            return None
        user = status.get("user") or {}
        if not status.get("authenticated") or not user.get("username"):
            return None
        if self.audiences and not set(self.audiences) & set(status.get("audiences") or ()):
            # An authenticator without support for audiences returns none.
            return None
        return User(
            name=str(user["username"]),
            uid=str(user.get("uid") or ""),
            groups=tuple(map(str, user.get("groups") or ())),
            extra=as_extra(user.get("extra") or {}),
        )

    async def may_read(self, user: User, namespace: str, name: str) -> bool:
        """Whether `user` may `get` this object; without a name all in the namespace, without a namespace all.
        Raises Failed.
        """
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra},
            "resourceAttributes": {
                "group": self.reads.group,
                "resource": self.reads.plural,
                "verb": "get",
                "namespace": namespace,
                "name": name,
            },
        }
        status = await self._ask(_ACCESS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        return status.get("allowed") is True

    async def _ask(self, path: str, api_version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        body = {"apiVersion": api_version, "kind": kind, "spec": spec}
        answer = await self.cluster.request("POST", path, {}, body)
        if not 200 <= answer.status < 300:
            # The message may contain the token.
            raise Failed("ReviewFailed", f"a {kind} was answered with status {answer.status}")
        status = answer.body.get("status")
        return status if isinstance(status, dict) else {}
