"""Secrets that a FlagSource names, and advice on content that is not trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from controller.api.meta import ACCEPT_REVISION, ObjectKey
from controller.runtime.secret_texts import SecretTexts
from controller.runtime.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from controller.api.fields import LocalReference

    ReadSecret = Callable[[str, str, str | None], Awaitable[Mapping[str, bytes] | None]]
    """(namespace, name, service account) -> a Secret's content, None if there is none; raises Failed."""


NO_IDENTITY: Final = (
    "spec.{}.secretRef is missing, and --deny-cloud-identity lets no source of provider {} use the "
    "controller's own identity; name a Secret"
)
MISSING: Final = "AuthenticationFailed"
"""The reason for a missing Secret, as in Flux."""


class Reading(Protocol):
    """For whom a Secret is read."""

    @property
    def key(self) -> ObjectKey:
        """The object that names the Secret, which is in the same namespace."""

    @property
    def account(self) -> str | None:
        """The service account with whose rights it is read; None: that of the installation."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Reads the Secrets beside a FlagSource."""

    read: ReadSecret

    async def require(self, reference: LocalReference, request: Reading, field: str) -> SecretTexts:
        """Return the Secret that `field` of the spec names. Raises Failed if there is none."""
        name = f"{request.key.namespace}/{reference.name}"
        content = await self.read(request.key.namespace, reference.name, request.account)
        if content is None:
            raise Failed(MISSING, f"Secret {name} does not exist; create it, or correct {field}")
        return SecretTexts(name, content)

    async def optional(
        self, reference: LocalReference | None, request: Reading, field: str
    ) -> SecretTexts | None:
        """Return as `require` does, or None if the spec names no Secret."""
        return None if reference is None else await self.require(reference, request, field)


OF_OPTIONS: Final = "made of --verify-key"
"""The Secret that a command line's keys would be in."""


@dataclass(frozen=True, slots=True)
class TrustAdvice:
    """Parts of sentences."""

    add_key: str
    """Says how to trust another key, and which are trusted."""
    accept: str
    """Says how to accept an older revision, up to its digest."""


def in_cluster(key: ObjectKey, secret: str = "", names: Iterable[str] = ()) -> TrustAdvice:
    """The advice for a FlagSource; `secret` (`namespace/name`) has the keys that `names` are."""
    return TrustAdvice(
        f"add the key to Secret {secret} (it has {', '.join(names)})",
        f"kubectl -n {key.namespace} annotate --overwrite flagsource/{key.name} {ACCEPT_REVISION}=",
    )


def on_command_line(names: Iterable[str]) -> TrustAdvice:
    """`names`: files that --verify-key names."""
    return TrustAdvice(
        f"trust the key by another --verify-key (there are {', '.join(names)})",
        "start flagstaff anew while the source is at ",
    )
