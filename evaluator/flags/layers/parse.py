"""A whole document to a flag set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluator.flags.layers.layer import as_read, read_layer
from evaluator.flags.layers.merge import Parsed, merge
from evaluator.flags.syntax.text import DEFAULT, Bounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.syntax.document import Document

__all__ = ["Parsed", "parse"]


def parse(
    data: bytes,
    *,
    file: str,
    bounds: Bounds = DEFAULT,
    prepare: Callable[[Document], Document] = as_read,
) -> Parsed:
    """Read flagd's definitions, JSON or YAML by the extension of `file`; never raises, whatever
    the content. `prepare` is called with the document that was read.
    """
    layer = read_layer([(file, data)], bounds=bounds, prepare=prepare)
    return merge([layer], document=True, bounds=bounds)
