"""Objects whose spec is kept as JSON text: as parsed values it is six times as large. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from controller.api.meta import Resource


class EncodedSpec(Mapping[str, Any]):
    """A spec as JSON text, decoded anew by each access; `decoded` decodes it once."""

    __slots__ = ("text",)

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.text = orjson.dumps(spec)

    def __getitem__(self, name: str) -> Any:
        return orjson.loads(self.text)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(orjson.loads(self.text))

    def __len__(self) -> int:
        return len(orjson.loads(self.text))


def spec_bytes(resource: Resource) -> int:
    """The size of an object's encoded spec in bytes."""
    return len(_spec(resource).text)


def decoded(resource: Resource) -> Resource:
    """The object with its spec as plain values."""
    return replace(resource, spec=orjson.loads(_spec(resource).text))


def _spec(resource: Resource) -> EncodedSpec:
    spec = resource.spec
    return spec if isinstance(spec, EncodedSpec) else EncodedSpec(spec)
