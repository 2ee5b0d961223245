"""What processes hold and leave behind: descriptors, children, temporary folders."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.chaos.world import World

DESCRIPTORS: Final = 60
"""More than at rest after the start: connections, mirrors and watches that are in use."""
CHILDREN: Final = 4
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


def held(world: World) -> dict[str, tuple[int, int]]:
    """Descriptors and children of each process of ours."""
    names = (*world.replicas, *world.pods)
    return {name: (descriptors(world.pid(name)), len(children(world.pid(name)))) for name in names}


def leaks(world: World, at_rest: dict[str, tuple[int, int]]) -> list[str]:
    """What is held beyond what was at rest, after a while in which it may be let go."""
    until = time.monotonic() + _PATIENCE
    while (found := _leaks(world, at_rest)) and time.monotonic() < until:
        time.sleep(1.0)
    return found


def _leaks(world: World, at_rest: dict[str, tuple[int, int]]) -> list[str]:
    found = []
    for name, (files, programs) in held(world).items():
        before = at_rest[name]
        if files > before[0] + DESCRIPTORS:
            found.append(f"{name} has {files} descriptors open, and had {before[0]}")
        if programs > before[1] + CHILDREN:
            found.append(f"{name} has {programs} children, and had {before[1]}")
    for name in world.replicas:
        left = [each.name for each in (world.folder / name / "tmp").iterdir()]
        # A client of Kubernetes writes the authority of its kubeconfig to a file, which a kill leaves.
        if len(left) > world.lives[name] + TEMPORARY:
            found.append(f"{name} left {left}")
    return found
