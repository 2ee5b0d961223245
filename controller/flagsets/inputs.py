"""The steps that a FlagSet's spec asks for its documents, and the ConfigMaps and Secrets that they need."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from controller.flagsets.preparation import NO_STEPS, Steps
from controller.flagsets.sops import Decryption, KeysError, decryption_with
from controller.flagsets.substitution import NAME, Variables
from controller.runtime.secret_texts import binding_of
from controller.runtime.setbacks import Stalled, Waiting

if TYPE_CHECKING:
    from controller.api.flagset import FlagSetSpec, SubstituteReference

Read: TypeAlias = Callable[[str, str, str | None], Awaitable[Mapping[str, bytes] | None]]
"""(namespace, name, service account) -> an object's content by key, or None; never kept. Raises Failed."""

AGE: Final = ".agekey"
"""The end of the names of a Secret's keys that hold age identities, as with Flux."""
PGP: Final = ".asc"
"""The end of the names of a Secret's keys that hold OpenPGP secret keys."""
_NAME: Final = re.compile(NAME)


async def _nothing(namespace: str, name: str, account: str | None) -> None:
    del namespace, name, account


class Inputs(NamedTuple):
    """What was read for one build."""

    steps: Steps = NO_STEPS
    fingerprint: str = ""
    """A value that changes whenever the steps may give another result."""


def steps(values: Mapping[str, str] | None, keys: str = "") -> Steps:
    """The steps with `values` of variables, if any, and age identities, one a line. Raises Stalled."""
    try:
        decryption = decryption_with([keys]) if keys else Decryption()
    except KeysError as error:
        raise Stalled("DecryptionFailed", str(error)) from None
    return Steps(decryption, None if values is None else Variables(values))


@dataclass(frozen=True, slots=True)
class InputReader:
    """Reads what a spec refers to, in the FlagSet's own namespace and cluster, as the service account that it
    names there."""

    secret: Read = _nothing
    config_map: Read = _nothing

    async def read(self, spec: FlagSetSpec, namespace: str) -> Inputs:
        """The steps that documents go through. Raises Setback."""
        decryption, keys = await self._decryption(spec, namespace)
        if spec.substitute is None and not spec.substitute_from:
            return Inputs(Steps(decryption), keys)
        values: dict[str, str] = {}
        secret: set[str] = set()
        for reference in spec.substitute_from:
            texts = await self._values(reference, namespace, spec.local_account)
            values |= texts
            (secret.update if reference.kind == "Secret" else secret.difference_update)(texts)
        literals = spec.substitute or {}
        variables = Variables(values | literals, frozenset(secret - literals.keys()))
        content = json.dumps([keys, sorted(variables.values.items()), sorted(variables.secret)])
        return Inputs(Steps(decryption, variables), hashlib.sha256(content.encode()).hexdigest())

    async def _decryption(self, spec: FlagSetSpec, namespace: str) -> tuple[Decryption, str]:
        """What decrypts, and a fingerprint of its keys."""
        if spec.decryption is None:
            return Decryption(), ""
        name = f"{namespace}/{spec.decryption.secret_ref.name}"
        content = await self.secret(namespace, spec.decryption.secret_ref.name, spec.local_account)
        if content is None:
            message = f"Secret {name} does not exist; create it, or correct spec.decryption.secretRef"
            raise Waiting("DecryptionFailed", message)
        age = [content[key].decode(errors="replace") for key in sorted(content) if key.endswith(AGE)]
        pgp = [content[key] for key in sorted(content) if key.endswith(PGP)]
        joined = b"\0".join((*(key.encode() for key in age), b"", *pgp))
        try:
            decryption = await asyncio.to_thread(decryption_with, age, pgp)
        except KeysError as error:
            message = f"Secret {name}: {error}; its keys are in entries that end with {AGE} or {PGP}"
            raise Stalled("DecryptionFailed", message) from None
        return decryption, hashlib.sha256(joined).hexdigest()

    async def _values(
        self, reference: SubstituteReference, namespace: str, account: str | None
    ) -> dict[str, str]:
        read = self.secret if reference.kind == "Secret" else self.config_map
        content = await read(namespace, reference.name, account)
        # Readers of the flags would see a secret that is for certain hosts alone.
        binding_of(content or {}).require_free("definitions")
        title = f"{reference.kind} {namespace}/{reference.name}"
        if content is None and not reference.optional:
            message = f"{title} does not exist; create it, or correct spec.substituteFrom"
            raise Waiting("SubstitutionFailed", message)
        try:
            # What an editor or `echo` put at its end is no part of it.
            return {
                key: value.decode().rstrip("\r\n")
                for key, value in (content or {}).items()
                if _NAME.fullmatch(key)
            }
        except UnicodeDecodeError:
            raise Stalled("SubstitutionFailed", f"{title} holds a variable that is not UTF-8 text") from None


NO_INPUTS: Final = InputReader()
