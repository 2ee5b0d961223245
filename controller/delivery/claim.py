"""What one object claims: the name that it is served under, and a flagSetId. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from controller.api import flagshard
from controller.api.flagset import proven_writer
from controller.api.remote_provider import provider_shards

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.objects.meta import ObjectKey, Resource

Place: TypeAlias = tuple[str, str]
"""Namespace and name: what both kinds share."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one object claims."""

    key: ObjectKey
    created: str
    """RFC 3339."""
    maker: str = ""
    """The FlagSet that wrote it. One that writes both kinds is in no conflict with itself."""
    flag_set_id: str = ""
    shards: tuple[str, ...] = ()
    """Names of the FlagShards that it consists of."""
    remote: tuple[str, ...] = ()
    """Names of the FlagShards with the flags of its remote provider."""

    @property
    def place(self) -> Place:
        """Return the namespace and the name under which it is served."""
        return self.key.namespace, self.key.name


def claim_of(meta: Resource, spec: Mapping[str, Any]) -> Claim:
    """What an object claims, read off its spec without reading it whole."""
    document = spec.get("flagSpec")
    if document is None:
        document = spec.get("featureFlagSpec")
    if isinstance(document, str):
        try:
            document = orjson.loads(document)
        except ValueError:
            document = None
    metadata = document.get("metadata") if isinstance(document, dict) else None
    wanted = metadata.get("flagSetId") if isinstance(metadata, dict) else None
    return Claim(
        key=meta.key,
        created=meta.created,
        maker=proven_writer(meta),
        flag_set_id=wanted if isinstance(wanted, str) else "",
        shards=flagshard.names(spec) if spec.get("flagSpec") is None else (),
        remote=provider_shards(meta.status),
    )


def alike(before: Resource | None, after: Resource | None) -> bool:
    """Whether both claim the same for sure."""
    if before is None or after is None:
        return False
    same = before.uid == after.uid and before.generation == after.generation
    return same and proven_writer(before) == proven_writer(after)
