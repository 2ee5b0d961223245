"""Secrets that a FlagSource names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from controller.runtime.reconciling.setbacks import Failed
from controller.runtime.user_text.secret_texts import SecretTexts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from controller.api.objects.fields import LocalReference
    from controller.api.objects.meta import ObjectKey

    ReadSecret = Callable[[str, str, str | None], Awaitable[Mapping[str, bytes] | None]]
    """(namespace, name, service account) -> a Secret's content, None if there is none; raises Failed."""

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
