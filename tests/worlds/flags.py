"""Flags of documents, with defaults: what tests of the evaluator and of the controller have in common."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from evaluator.flags.merge import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.flags.model import FlagSet

SWITCH: Final = {"on": True, "off": False}


def flag(default: Any = "on", variants: Mapping[str, Any] = SWITCH, **parts: Any) -> dict[str, Any]:
    """The definition of a flag."""
    return {"state": "ENABLED", "variants": {**variants}, "defaultVariant": default, **parts}


def switches(**defaults: str) -> dict[str, Any]:
    """A document of boolean flags, by their default variants."""
    return {"flags": {key: flag(default) for key, default in defaults.items()}}


def flags(**defaults: str) -> str:
    """Its text."""
    return json.dumps(switches(**defaults))


def flag_set_of(document: Any) -> FlagSet:
    """The flag set that a document is."""
    return parse(json.dumps(document).encode(), file="flags.json").flag_set
