"""What processes hold and leave behind: descriptors, children, memory, files."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.chaos.world import ChaosWorld

MORE: Final = {"descriptors": 60, "children": 4, "MB of memory": 64, "files": 100}
"""Than at rest after the start: connections, mirrors, watches, versions and artifacts that are in use."""
TEMPORARY: Final = 4
_PATIENCE: Final = 30.0


def descriptors(pid: int) -> int:
    """Open files and sockets; none of who has ended."""
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except FileNotFoundError:
        return 0


def children(pid: int) -> list[int]:
    """Processes that it started, and theirs."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # The name stands in brackets, and may hold any character.
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found, before = {pid}, 0
    while len(found) > before:
        before = len(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return sorted(found - {pid})


def megabytes(pid: int) -> int:
    """Resident memory; none of who has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() // 1_000_000
    except FileNotFoundError:
        return 0


def files(folder: Path) -> int:
    """What a process keeps on disk, but for Git's objects: there are more with each commit."""
    return sum("objects" not in parent.split("/") and len(names) for parent, _, names in os.walk(folder))


def count_held(world: ChaosWorld) -> dict[str, dict[str, int]]:
    """What each process of ours holds, by the words of MORE."""
    return {
        name: {
            "descriptors": descriptors(world.pid(name)),
            "children": len(children(world.pid(name))),
            "MB of memory": megabytes(world.pid(name)),
            "files": files(world.folder / name),
        }
        for name in (*world.replicas, *world.pods)
    }


def leaks(world: ChaosWorld, at_rest: dict[str, dict[str, int]]) -> list[str]:
    """What is held beyond what was at rest, after a while in which it may be let go."""
    until = time.monotonic() + _PATIENCE
    while (found := _leaks(world, at_rest)) and time.monotonic() < until:
        time.sleep(1.0)
    return found


def _leaks(world: ChaosWorld, at_rest: dict[str, dict[str, int]]) -> list[str]:
    found = [
        f"{name} has {count} {what}, and had {at_rest[name][what]}"
        for name, now in count_held(world).items()
        for what, count in now.items()
        if count > at_rest[name][what] + MORE[what]
    ]
    for name in world.replicas:
        left = [each.name for each in (world.folder / name / "tmp").iterdir()]
        # A client of Kubernetes writes the authority of its kubeconfig to a file, which a kill leaves.
        if len(left) > world.lives[name] + TEMPORARY:
            found.append(f"{name} left {left}")
    return found
