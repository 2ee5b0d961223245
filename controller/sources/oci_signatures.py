"""Finds the signatures of cosign 2 and 3 on a manifest, and judges them by trusted keys or identities."""

from __future__ import annotations

import asyncio
import io
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from controller.runtime.helper import TaskLimits
from controller.runtime.helpers import HelperLostError, Helpers, LimitExceededError
from controller.runtime.setbacks import Failed, Stalled
from controller.sources.backend import NotBelievedError, NotJudgedError, Signer, Unverified
from controller.sources.cosign import (
    BUNDLE,
    PAYLOAD,
    SIGNATURE,
    InvalidRootError,
    SignerIdentity,
    verify_bundle,
    verify_keyless,
    verify_payload,
)
from controller.sources.oci_manifest import ImageLayer, layers_of
from controller.sources.oci_registry import NotFound, Registry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from controller.runtime.limits import Places
    from controller.sources.cosign_keys import CosignKey

REFUSED: Final = "InvalidArtifactSignature"
_MOST: Final = 20
"""Most signatures of either kind that are verified."""
_BYTES: Final = 256 * 1024
_MOST_TRIES: Final = 1_000
"""Pairs of a key and a signature that are tried; each takes a millisecond at most."""
_SHOWN: Final = 3
"""Reasons for which signatures are not believed."""
TRUSTED_ROOT: Final = "trusted_root.json"
_TASK: Final = TaskLimits(memory_bytes=128 * 1024**2, cpu_seconds=10.0, file_bytes=0)


class Judge(Protocol):
    """Judges signatures."""

    @property
    def tries(self) -> int:
        """The keys that one signature is compared with."""

    async def of_bundle(self, content: bytes, digest: str) -> Signer:
        """Return who signed the manifest `digest` by a bundle. Raises NotBelievedError, or a Setback."""

    async def of_payload(self, content: bytes, signature: str, digest: str) -> Signer:
        """Return who signed a payload that names the manifest `digest`. Raises NotBelievedError."""

    def advice(self, artifact: str) -> str:
        """What to do about an artifact without a trusted signature."""


@dataclass(frozen=True, slots=True)
class CosignTrust:
    """The trusted keys or identities of one request."""

    judge: Judge
    epoch: str

    async def signer(self, registry: Registry, digest: str) -> Signer:
        """Return who signed the manifest. Raises Unverified, or another Setback of the registry."""
        whys: list[str] = []
        unknown = False
        tries = 0
        async for kind, content, signature in _attachments(registry, digest):
            tries += self.judge.tries
            if tries > _MOST_TRIES:
                whys.insert(0, f"more than {_MOST_TRIES} pairs of a signature and a key; remove old ones")
                unknown = True
                break
            try:
                if kind == BUNDLE:
                    return await self.judge.of_bundle(content, digest)
                return await self.judge.of_payload(content, signature, digest)
            except (NotBelievedError, ValueError) as error:
                why = str(error) if isinstance(error, NotBelievedError) else "its signature cannot be read"
                unknown = unknown or isinstance(error, NotJudgedError)
                if why not in whys:
                    whys.append(why)
        reasons = "; ".join(whys[:_SHOWN]) or "it is not signed: no signature by cosign is attached to it"
        named = f"{registry.address}@{digest}"
        if unknown:
            # A helper that the kernel ended for want of memory looks the same: the signature may be good.
            raise Failed("OCIArtifactPullFailed", f"{named}: {reasons}")
        raise Unverified(REFUSED, f"{named}: {reasons}; {self.judge.advice(named.removeprefix('oci://'))}")


async def _attachments(registry: Registry, digest: str) -> AsyncIterator[tuple[str, bytes, str]]:
    """Return media type, content and signature of what is attached; a bundle contains its signature."""
    for manifest in (await registry.referrers(digest, BUNDLE))[:_MOST]:
        for layer in _layers(await registry.find_manifest(manifest), BUNDLE)[:1]:
            yield BUNDLE, await _content(registry, layer), ""
    for layer in _layers(await registry.find_manifest(f"{digest.replace(':', '-')}.sig"), PAYLOAD):
        if SIGNATURE in layer.annotations:
            yield PAYLOAD, await _content(registry, layer), layer.annotations[SIGNATURE]


def _layers(manifest: bytes, media_type: str) -> list[ImageLayer]:
    """Return the layers of a media type that are small enough to be read."""
    layers = (layer for layer in map(ImageLayer.of, layers_of(manifest)) if layer.media_type == media_type)
    return list(islice((layer for layer in layers if layer.digest and 0 <= layer.size <= _BYTES), _MOST))


async def _content(registry: Registry, layer: ImageLayer) -> bytes:
    """Return a layer's content; empty if it is missing: another layer may have a good signature."""
    file = io.BytesIO()
    try:
        await registry.save_blob(layer.digest, layer.size, file)
    except Failed as failed:
        if not isinstance(failed, NotFound) and failed.reason != "DigestMismatch":
            raise
        return b""
    return file.getvalue()


@dataclass(frozen=True, slots=True)
class KeyJudge:
    """Accepts the signatures of keys."""

    keys: tuple[CosignKey, ...]
    add_key: str
    """Says how to trust another key, as a part of a sentence."""
    places: Places
    """Limits the threads: one namespace is given half of them."""
    namespace: str

    @property
    def tries(self) -> int:
        """Implements `Judge`."""
        return len(self.keys)

    async def of_bundle(self, content: bytes, digest: str) -> Signer:
        """Implements `Judge`."""
        async with self.places.place(self.namespace):
            return await asyncio.to_thread(verify_bundle, content, digest, self.keys)

    async def of_payload(self, content: bytes, signature: str, digest: str) -> Signer:
        """Implements `Judge`."""
        async with self.places.place(self.namespace):
            return await asyncio.to_thread(verify_payload, content, signature, digest, self.keys)

    def advice(self, artifact: str) -> str:
        """Implements `Judge`."""
        return f"sign it with a trusted key (cosign sign --key KEY {artifact}), or {self.add_key}"


@dataclass(frozen=True, slots=True)
class IdentityJudge:
    """Accepts the signatures of identities that an instance of Sigstore certifies."""

    identities: tuple[SignerIdentity, ...]
    root: str
    """A trusted_root.json."""
    secret: str
    """`namespace/name` of the Secret with the root; empty: it is that of the public instance."""
    helpers: Helpers
    places: Places
    """Limits the helpers: one namespace is given half of them."""
    namespace: str

    @property
    def tries(self) -> int:
        """Implements `Judge`."""
        return 1

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
