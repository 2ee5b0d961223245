"""Secrets that a FlagSource names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.runtime.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from controller.api.fields import LocalReference

MISSING: Final = "AuthenticationFailed"
"""As Flux calls a Secret that is not there."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Reads the Secrets beside a FlagSource."""

    read: Callable[[str, str], Awaitable[Mapping[str, bytes] | None]]
    """(namespace, name) -> a Secret's content, None if there is none; raises Failed."""

    async def content(
        self, reference: LocalReference, namespace: str, field: str
    ) -> tuple[str, Mapping[str, bytes]]:
        """(`namespace/name`, content) of the Secret that `field`, such as `spec.git.secretRef`, names.
        Raises Failed where there is none.
        """
        name = f"{namespace}/{reference.name}"
        content = await self.read(namespace, reference.name)
        if content is None:
            raise Failed(MISSING, f"Secret {name} does not exist; create it, or correct {field}")
        return name, content
