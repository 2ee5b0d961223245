"""Parts of the files beside this module, and comparing with what chainsaw's `assert` means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def part(file: str, name: str, namespace: str) -> list[dict[str, Any]]:
    """The manifests of one part of `file`.yaml."""
    text = Path(__file__).with_name(f"{file}.yaml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = yaml.safe_load(text.replace("NAMESPACE", namespace))[name]
    return found


def difference(wanted: Any, found: Any, path: str = "") -> str:
    """Where `found` is not as `wanted`, and how; empty where it is.

    An object has at least the wanted members; an array has just as many items, each as wanted in its place.
    """
    if isinstance(wanted, dict) and isinstance(found, dict):
        parts = ((f"{path}.{name}", wanted[name], found.get(name)) for name in wanted)
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = zip(wanted, found, strict=True)
        parts = ((f"{path}[{number}]", *pair) for number, pair in enumerate(pairs))
    else:
        same = type(wanted) is type(found) and wanted == found
        return "" if same else f"{path}: wanted {wanted!r}, found {found!r}"
    return next(filter(None, (difference(each, there, place) for place, each, there in parts)), "")
