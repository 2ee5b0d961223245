"""Judges of artifacts' signatures: by trusted keys, or by trusted identities."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.runtime.process.helper import TaskLimits
from controller.runtime.process.helpers import HelperLostError, LimitExceededError
from controller.runtime.reconciling.setbacks import Failed, Stalled
from controller.sources.verification.cosign import verify_bundle, verify_payload
from controller.sources.verification.keyless import InvalidRootError, verify_keyless
from controller.sources.verification.signer import NotBelievedError, NotJudgedError

if TYPE_CHECKING:
    from controller.runtime.process.helpers import Helpers
    from controller.runtime.tenancy.places import Places
    from controller.sources.verification.cosign import CosignKey
    from controller.sources.verification.keyless import Identity
    from controller.sources.verification.signer import Signer

TRUSTED_ROOT: Final = "trusted_root.json"
_TASK: Final = TaskLimits(memory_bytes=128 * 1024**2, cpu_seconds=10.0, file_bytes=0)


@dataclass(frozen=True, slots=True)
class KeyJudge:
    """Believes keys."""

    keys: tuple[CosignKey, ...]
    add_key: str
    """How another key is trusted, as a part of a sentence."""

    async def of_bundle(self, content: bytes, digest: str) -> Signer:
        """Implements `Judge`."""
        return await asyncio.to_thread(verify_bundle, content, digest, self.keys)

    async def of_payload(self, content: bytes, signature: str, digest: str) -> Signer:
        """Implements `Judge`."""
        return await asyncio.to_thread(verify_payload, content, signature, digest, self.keys)

    def advice(self, artifact: str) -> str:
        """Implements `Judge`."""
        return f"sign it with a trusted key (cosign sign --key KEY {artifact}), or {self.add_key}"


@dataclass(frozen=True, slots=True)
class IdentityJudge:
    """Believes identities, as far as an instance of Sigstore vouches for them."""

    identities: tuple[Identity, ...]
    root: str
    """A trusted_root.json."""
    secret: str
    """`namespace/name` of the Secret with the root; empty: it is that of the public instance."""
    helpers: Helpers
    places: Places
    """Of the helpers: one namespace is given half."""
    namespace: str

    async def of_bundle(self, content: bytes, digest: str) -> Signer:
        """Implements `Judge`."""
        try:
            async with self.places.place(self.namespace):
                return await self.helpers.run(
                    _TASK, verify_keyless, content, digest, self.root, self.identities
                )
        except InvalidRootError as error:
            message = f"Secret {self.secret}: {TRUSTED_ROOT!r} cannot be used: {error}"
            raise Stalled("InvalidSecret", message) from None
        except LimitExceededError as error:
            raise NotJudgedError(f"its bundle needs more {error.limit} than it may use") from None
        except HelperLostError as error:
            raise Failed("OCIArtifactPullFailed", f"its signature could not be verified: {error}") from error

    async def of_payload(self, content: bytes, signature: str, digest: str) -> Signer:
        """Implements `Judge`: there is no proof beside it that the log has it."""
        del content, signature, digest
        raise NotBelievedError("its signature has the form of cosign 2, which is read with keys alone")

    def advice(self, artifact: str) -> str:
        """Implements `Judge`."""
        trusted = "; ".join(map(str, self.identities))
        return (
            f"sign it as one of them with cosign 3 (cosign sign {artifact}), "
            f"or add the signer to spec.verify.matchOIDCIdentity (it has {trusted})"
        )
