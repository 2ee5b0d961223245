"""The published OFREP provider as docs/rollout-analysis.md extends it: it reports events."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from openfeature.contrib.provider.ofrep import OFREPProvider

_PAGE: Final = Path(__file__).parents[1] / "docs" / "rollout-analysis.md"


def tracking_provider(port: int) -> OFREPProvider:
    """The provider of the page, for the OFREP port of an evaluator on loopback."""
    [block] = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, _PAGE, "exec"), names)  # noqa: S102 - the page's own text
    provider: OFREPProvider = names["TrackingProvider"](f"http://127.0.0.1:{port}")
    return provider
