"""Helper processes that outlive the test that started them. Starting one takes longer than most tests do: it
is a Python process, which loads libgit2, a store's client or Sigstore's library.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final, cast

import pytest

from controller.runtime.helpers import _COMMAND, _NOTHING, Helpers, _Process

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_KEPT: Final = 6
"""Of all kinds together, in one worker of the run."""
_kept: deque[_Kept] = deque()
_FACTORIES: Final = ("git_factory", "oci_backend", "bucket_factory")


@dataclass(frozen=True, eq=False, slots=True)
class _Kept:
    """A process that waits for its next test; another kind of it has other modules or another environment."""

    kind: tuple[tuple[str, ...], frozenset[tuple[str, str]]]
    popen: subprocess.Popen[bytes]

    def end(self) -> None:
        self.popen.kill()
        with self.popen:
            self.popen.wait()


@dataclass(eq=False, slots=True)
class _Child:
    """What `Helpers` asks of a process, while it belongs to one test and its event loop."""

    kept: _Kept
    pipes: tuple[asyncio.BaseTransport, ...]

    def kill(self) -> None:
        self.kept.popen.kill()

    async def wait(self) -> int:
        await asyncio.to_thread(self.kept.popen.wait)
        await self.leave()
        with self.kept.popen as ended:
            return ended.wait()

    async def leave(self) -> None:
        """Its pipes leave the event loop, and stay open otherwise."""
        for each in self.pipes:
            each.close()
        # They are closed by callbacks of the loop.
        for _ in range(2):
            await asyncio.sleep(0)


class WarmHelpers(Helpers):
    """Closing them keeps the idle processes for whoever needs such ones next."""

    async def close(self) -> None:
        # One that a caller did not wait for is as good as any other.
        started = await asyncio.gather(*self._starting, return_exceptions=True)
        self._starting.clear()
        self._idle += [each for each in started if not isinstance(each, BaseException)]
        while self._idle:
            process = self._idle.pop()
            self._all.discard(process)
            child = cast("_Child", process.child)
            await child.leave()
            _kept.append(child.kept)
        await super().close()
        while len(_kept) > _MOST_KEPT:
            await asyncio.to_thread(_kept.popleft().end)

    async def _start(self) -> _Process:
        without = self._without
        given = {name: text for name, text in os.environ.items() if not (without and without.fullmatch(name))}
        # The test that runs is named there, and no helper reads it.
        given.pop("PYTEST_CURRENT_TEST", None)
        kind = (self._modules, frozenset(given.items()))
        found = next((each for each in _kept if each.kind == kind), None)
        if found is not None:
            _kept.remove(found)
            return await self._join(found)
        process = await self._join(_Kept(kind, await asyncio.to_thread(self._spawn, given)))
        await process.call(_NOTHING)
        return process

    def _spawn(self, given: dict[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", _COMMAND.format(self._modules)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**given, "MALLOC_ARENA_MAX": "1"},
        )

    async def _join(self, kept: _Kept) -> _Process:
        loop = asyncio.get_running_loop()
        replies = asyncio.StreamReader()
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(replies), _again(kept.popen.stdout)
        )
        writing, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, _again(kept.popen.stdin)
        )
        requests = asyncio.StreamWriter(writing, protocol, None, loop)
        child = cast("asyncio.subprocess.Process", _Child(kept, (reading, writing)))
        process = _Process(child, requests, replies)
        self._all.add(process)
        return process


def _again(pipe: IO[bytes] | None) -> IO[Any]:
    """The same pipe, to be closed alone."""
    assert pipe is not None
    return os.fdopen(os.dup(pipe.fileno()), pipe.mode, buffering=0)


@pytest.fixture(scope="session", autouse=True)
def end_of_helpers() -> Iterator[None]:
    """None outlives the run."""
    yield
    while _kept:
        _kept.pop().end()


@pytest.fixture(autouse=True)
def warm_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Factories of sources use them."""
    for module in _FACTORIES:
        monkeypatch.setattr(f"controller.sources.{module}.Helpers", WarmHelpers)
