"""Secrets that a FlagSource names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.runtime.reconciling.setbacks import Failed
from controller.runtime.user_text.secret_texts import SecretTexts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from controller.api.objects.fields import LocalReference
    from controller.sources.backend import FetchRequest

    ReadSecret = Callable[[str, str, str | None], Awaitable[Mapping[str, bytes] | None]]
    """(namespace, name, service account) -> a Secret's content, None if there is none; raises Failed."""

MISSING: Final = "AuthenticationFailed"
"""The reason for a missing Secret, as in Flux."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Reads the Secrets beside a FlagSource."""

    read: ReadSecret

    async def require(self, reference: LocalReference, request: FetchRequest, field: str) -> SecretTexts:
        """Return the Secret that `field` of the spec names. Raises Failed if there is none."""
        name = f"{request.key.namespace}/{reference.name}"
        content = await self.read(request.key.namespace, reference.name, request.account)
        if content is None:
            raise Failed(MISSING, f"Secret {name} does not exist; create it, or correct {field}")
        return SecretTexts(name, content)

    async def optional(
        self, reference: LocalReference | None, request: FetchRequest, field: str
    ) -> SecretTexts | None:
        """Return as `require` does, or None if the spec names no Secret."""
        return None if reference is None else await self.require(reference, request, field)
