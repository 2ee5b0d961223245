"""A remote's references: parsed and chosen from beside the event loop where there are many."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.runtime.reconciling.setbacks import Stalled
from controller.sources.git.complaints import LIMIT
from controller.sources.git.listing.reference import Reference, choose

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from controller.sources.provider import Revision

MAX_REFERENCES: Final = 100_000
_MANY: Final = 1_000
_LONG: Final = 64 * 1024
"""Characters."""


@dataclass(frozen=True, slots=True)
class References:
    """What a remote's references point at."""

    commits: Mapping[str, str]
    """Commit ids by full name, of an annotated tag its commit's; a detached HEAD may be among them."""
    head: str | None
    """The full name that HEAD stands for, if it stands for one."""


def narrowed(reference: Reference) -> tuple[str, ...]:
    """Options for `git ls-remote`: pull requests, which forges list, are asked for by name alone."""
    everything = reference.name is not None or reference == Reference()
    return () if everything else ("--heads", "--tags")


async def parse(text: str, where: str) -> References:
    """What `git ls-remote --symref` printed. Raises Stalled (LimitExceeded)."""
    if len(text) < _LONG:
        return _parsed(text.splitlines(), where)
    return await asyncio.to_thread(lambda: _parsed(text.splitlines(), where))


async def choose_among(references: References, reference: Reference) -> Revision:
    """As `choose`."""
    if len(references.commits) < _MANY:
        return choose(references.commits, references.head, reference)
    return await asyncio.to_thread(choose, references.commits, references.head, reference)


def _parsed(lines: Iterable[str], where: str) -> References:
    """`<id>\\t<name>`, `ref: <name>\\tHEAD`, and tags' commits as `^{}`."""
    head = None
    listed: list[tuple[str, str]] = []
    for line in lines:
        value, tab, name = line.partition("\t")
        if value.startswith("ref: "):
            head = value.removeprefix("ref: ") if name == "HEAD" else head
        elif tab:
            listed.append((value, name))
    commits = commits_of(listed)
    if len(commits) > MAX_REFERENCES:
        raise Stalled(LIMIT, f"{where}: the repository has more than {MAX_REFERENCES} references")
    return References(commits, head)


def commits_of(listed: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Commit ids by name, from (id, name); what is listed as `NAME^{}` is the commit of the tag `NAME`."""
    commits: dict[str, str] = {}
    of_tags: dict[str, str] = {}
    for value, name in listed:
        (of_tags if name.endswith("^{}") else commits)[name.removesuffix("^{}")] = value
    return commits | of_tags
