"""FeatureFlagConfiguration and FeatureFlag in every version, read as one flagd document."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field, OnErrorOmit

from controller.api.flagset import ProblemStatus
from controller.api.historic import modernise
from controller.api.objects.fields import InvalidSpecError, Model, Name
from controller.api.objects.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from controller.api.objects.meta import Resource

KIND: Final = "FeatureFlagConfiguration"
FLAG_KIND: Final = "FeatureFlag"
API_VERSION: Final = "core.openfeature.dev/v1beta1"
MOST_BYTES: Final = 3 * 1024 * 1024
"""Most bytes of a document in a string: more does not fit into an object."""


class ShardReference(Model):
    """A part of a set that is larger than one object may be."""

    name: Name
    digest: Annotated[str, Field(min_length=1, max_length=128)]
    flags: int | None = None


class ConfigurationSpec(Model):
    """What is delivered: just one of these."""

    flag_spec: dict[str, Any] | None = None
    shards: Annotated[tuple[ShardReference, ...], Field(min_length=1, max_length=256)] | None = None
    feature_flag_spec: Any = None
    revision: str | None = None


class LaggardStatus(Model):
    """An evaluator that is silent, or serves something else."""

    name: str
    node: str | None = None
    serves: str | None = None
    since: str | None = None
    silent: bool = False
    claimed: bool = False


class ConfigurationStatus(Status):
    """What became of it."""

    revision: str | None = None
    digest: str | None = None
    flag_set_id: str | None = None
    flags: int | None = None
    served: str | None = None
    total: int | None = None
    delivered: int | None = None
    served_within: str | None = None
    """The longest time from observing the change to serving it, as a text for people: `1.2s`."""
    laggards: Annotated[tuple[OnErrorOmit[LaggardStatus], ...] | None, Field(max_length=20)] = None
    problem_count: int | None = None
    problems: Annotated[tuple[ProblemStatus, ...], Field(max_length=50)] = ()

    @property
    def content(self) -> tuple[str, str]:
        """The revision of the content, and its digest."""
        return self.revision or "", self.digest or ""

    @property
    def served_by(self) -> int | None:
        """Return the first number of `served`, or None."""
        count = (self.served or "").partition("/")[0]
        return int(count) if count.isascii() and count.isdigit() else None


@dataclass(frozen=True, slots=True)
class FlagDocument:
    """What an object says, as flagd would read it."""

    content: bytes
    """JSON."""
    warnings: tuple[str, ...] = ()
    """About a historic form."""


class MissingShardsError(Exception):
    """The set is not whole yet; the text names a shard that is not there."""


def flag_document(
    resource: Resource, shard: Callable[[str], Resource | None] = lambda _: None
) -> FlagDocument:
    """The document of an object of either kind and any version. `shard` finds a FlagShard beside it by name.

    Raises InvalidSpecError where there is none, MissingShardsError where a part of it is not there.
    """
    spec = resource.spec
    if spec.get("flagSpec") is not None:
        return FlagDocument(_bytes(spec["flagSpec"]))
    if spec.get("shards") is not None:
        return FlagDocument(_bytes(_assembled(spec["shards"], shard)))
    historic = spec.get("featureFlagSpec")
    if isinstance(historic, str):
        return _from_text(historic)
    if isinstance(historic, dict):
        return FlagDocument(_bytes(historic))
    raise InvalidSpecError("spec.flagSpec: there are no flags; this is where they belong")


def _bytes(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _from_text(text: str) -> FlagDocument:
    if len(text) > MOST_BYTES:
        raise InvalidSpecError(f"spec.featureFlagSpec: more than {MOST_BYTES} characters")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        # The parser says where it breaks.
        return FlagDocument(text.encode(errors="replace"))
    if not isinstance(document, dict):
        return FlagDocument(text.encode(errors="replace"))
    modern, warnings = modernise(document)
    same = modern == document
    return FlagDocument(text.encode(errors="replace") if same else _bytes(modern), warnings)


def _assembled(shards: Any, shard: Callable[[str], Resource | None]) -> Mapping[str, Any]:
    """The union of all shards; metadata and evaluators stand in the first."""
    whole: dict[str, Any] = {"flags": {}}
    if not isinstance(shards, list) or not all(isinstance(each, dict) for each in shards):
        raise InvalidSpecError("spec.shards: this is a list of names and digests")
    for reference in shards:
        found = shard(str(reference.get("name")))
        if found is None or found.spec.get("digest") != reference.get("digest"):
            raise MissingShardsError(f"FlagShard {reference.get('name')} is not there yet")
        part = found.spec.get("flagSpec")
        flags = part.get("flags") if isinstance(part, dict) else None
        if not isinstance(part, dict) or not isinstance(flags, dict):
            raise InvalidSpecError(f"spec.shards: FlagShard {reference.get('name')} has no flags")
        whole["flags"].update(flags)
        for name in ("$evaluators", "metadata"):
            if part.get(name):
                whole[name] = part[name]
    return whole
