"""A whole document to a flag set."""

from __future__ import annotations

from evaluator.flags.layer import read_layer
from evaluator.flags.merge import Parsed, merge
from evaluator.flags.text import DEFAULT, Bounds

__all__ = ["Parsed", "parse"]


def parse(data: bytes, *, file: str, bounds: Bounds = DEFAULT) -> Parsed:
    """Read flagd's definitions, JSON or YAML by the extension of `file`; never raises, whatever
    the content.
    """
    return merge([read_layer([(file, data)], bounds=bounds)], document=True, bounds=bounds)
