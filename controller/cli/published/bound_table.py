"""The table of bounds of objects in `docs/security-promises.md`."""

from __future__ import annotations

from typing import Final

from controller.cli.published.shared_resources import written_between
from controller.delivery.object_bounds import BOUNDS

BEGIN: Final = "<!-- bounds of objects, written by `make crds` -->"
END: Final = "<!-- end of the bounds of objects -->"


def with_bounds(page: str) -> str:
    """Return a page with the bounds. Raises ValueError where it has no place for them."""
    head = "| objects | of each | at most | reason beyond |\n|---|---|---|---|\n"
    rows = (
        f"| {', '.join(bound.kinds)} | {bound.group} | {bound.most} | "
        f"{f'`{bound.reason}`' if bound.reason else 'none'} |\n"
        for bound in BOUNDS
    )
    return written_between(page, BEGIN, END, head + "".join(rows))
