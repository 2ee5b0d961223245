"""Secrets that a FlagSource names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.runtime.reconciling.setbacks import Failed
from controller.runtime.user_text.secret_texts import SecretTexts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from controller.api.fields import LocalReference
    from controller.sources.provider import Look

    ReadSecret = Callable[[str, str, str | None], Awaitable[Mapping[str, bytes] | None]]
    """(namespace, name, service account) -> a Secret's content, None if there is none; raises Failed."""

MISSING: Final = "AuthenticationFailed"
"""As Flux calls a Secret that is not there."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Reads the Secrets beside a FlagSource."""

    read: ReadSecret

    async def content(
        self, reference: LocalReference, look: Look, field: str
    ) -> tuple[str, Mapping[str, bytes]]:
        """(`namespace/name`, content) of the Secret that `field` names. Raises Failed where there is none."""
        namespace = look.key.namespace
        name = f"{namespace}/{reference.name}"
        content = await self.read(namespace, reference.name, look.account)
        if content is None:
            raise Failed(MISSING, f"Secret {name} does not exist; create it, or correct {field}")
        return name, content

    async def texts(self, reference: LocalReference | None, look: Look, field: str) -> SecretTexts | None:
        """The texts of the Secret; None where the spec names none. Raises Failed."""
        return None if reference is None else SecretTexts(*await self.content(reference, look, field))
