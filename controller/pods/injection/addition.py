"""What is made of a pod's settings and then added to the pod, and the record of it. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from controller.runtime.user_text.plain_text import json_object

if TYPE_CHECKING:
    from collections.abc import Mapping

Mark: TypeAlias = tuple[str, str, str]
"""(labels or annotations, name, value) by which the controller finds a pod."""


class Mounted(NamedTuple):
    """A volume and its folder: a whole one, since what is mounted by `subPath` is never updated."""

    name: str
    source: Mapping[str, Any]
    """The volume without its name."""
    folder: str
    writable: bool = False

    @property
    def volume(self) -> dict[str, Any]:
        """Return the entry of the pod's `volumes`."""
        return {"name": self.name, **self.source}

    @property
    def mount(self) -> dict[str, Any]:
        """Return the entry of the container's `volumeMounts`."""
        return {"name": self.name, "mountPath": self.folder, **({} if self.writable else {"readOnly": True})}


@dataclass(frozen=True, slots=True)
class Addition:
    """The same for a pod that gets an evaluator and for an application that evaluates by itself."""

    record: Mapping[str, str]
    """What the pod's annotation says of all this."""
    variables: list[dict[str, Any]]
    """Of the containers that evaluate flags."""
    mounts: tuple[Mounted, ...]
    """Of these containers."""
    volumes: tuple[Mounted, ...]
    """Of the pod: those, and the evaluator's."""
    chosen: frozenset[str] | None
    """The containers that evaluate flags, by name; None: all."""
    early: bool
    """Whether init containers evaluate flags, too."""
    marks: tuple[Mark, ...]
    """Further annotations and labels of the pod."""
    remark: str
    """In one line, what was done to the pod."""
    warnings: tuple[str, ...]
    container: dict[str, Any] | None = None
    """The evaluator; None: the application evaluates by itself."""
    native: bool = False
    """Whether the evaluator is an init container that stays."""


class Injected(NamedTuple):
    """What distinguishes one injection from another."""

    image: str
    """The evaluator's; empty where the application evaluates by itself."""
    configuration: str
    """A digest of all else that was added; empty of pods that were injected before it was recorded."""


def record_of(
    followed: Mapping[str, str], container: Mapping[str, Any] | None, *added: object
) -> dict[str, str]:
    """The record: `followed`, the image of the evaluator's `container` where there is one, and a digest of
    the rest of it and of what else is `added`. Only `followed` changes as flags change.
    """
    image = {} if container is None else {"image": str(container["image"])}
    rest = {name: value for name, value in (container or {}).items() if name != "image"}
    text = json.dumps([rest, *added], sort_keys=True, default=sorted)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return {**followed, **image, "configuration": digest}


def read_injected(record: Mapping[str, Any]) -> Injected:
    """What a record says, which any client may have written."""
    return Injected(str(record.get("image", "")), str(record.get("configuration", "")))


def read_record(text: str | None) -> Injected | None:
    """Return the value of an annotation; None where there is none."""
    return None if text is None else read_injected(json_object(text) or {})
