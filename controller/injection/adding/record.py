"""The content of a pod's annotation `flagstaff.dev/injected`. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from controller.runtime.user_text.plain_text import json_object

if TYPE_CHECKING:
    from collections.abc import Mapping


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


def injected_of(record: Mapping[str, Any]) -> Injected:
    """What a record says, which any client may have written."""
    return Injected(str(record.get("image", "")), str(record.get("configuration", "")))


def read_record(text: str | None) -> Injected | None:
    """What an annotation says; None where there is none."""
    return None if text is None else injected_of(json_object(text) or {})
