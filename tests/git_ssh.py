"""Git over SSH for tests: `git upload-pack` behind asyncssh's server on loopback, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import subprocess
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncssh

from tests.git_http import command_lines
from tests.repositories import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class SshHost:
    """A running host: it is `host`, it lets in `user`, and `stranger` is a key that nobody knows."""

    folder: Path
    """Where the keys are: `<name>`, `<name>.pub`."""
    port: int = 0
    users: list[str] = field(default_factory=list)
    """Who logged in."""
    command_lines: set[str] = field(default_factory=set)
    """Of every process that ran while somebody was served."""

    def url(self, repository: Path, user: str = "git") -> str:
        """Of a repository on the host."""
        return f"ssh://{user + '@' if user else ''}127.0.0.1:{self.port}{repository}"

    def key(self, name: str = "user") -> str:
        """A private key."""
        return (self.folder / name).read_text()

    def known_hosts(self, name: str = "host") -> str:
        """The line by which the host is known, or would be if its key were `name`."""
        return f"[127.0.0.1]:{self.port} {(self.folder / f'{name}.pub').read_text()}"


def make_key(folder: Path, name: str, password: str = "") -> None:
    """A key pair, `<name>` and `<name>.pub`."""
    made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", password, "-f", str(folder / name)]
    subprocess.run(made, check=True)


@contextlib.contextmanager
def ssh_host(folder: Path) -> Iterator[SshHost]:
    """A running host, gone afterwards; its keys are made in `folder`."""
    for name in ("host", "user", "stranger"):
        make_key(folder, name)
    host = SshHost(folder)
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    started = threading.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(_serve(host, started, stop),))
    thread.start()
    try:
        if not started.wait(30):
            raise RuntimeError("the SSH server does not start")
        yield host
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


async def _pump(source: Any, sink: Any) -> None:
    while piece := await source.read(65536):
        sink.write(piece)
        await sink.drain()
    sink.write_eof()


async def _serve(host: SshHost, started: threading.Event, stop: asyncio.Event) -> None:
    async def run(process: asyncssh.SSHServerProcess[bytes]) -> None:
        host.users.append(process.get_extra_info("username"))
        host.command_lines |= set(command_lines())
        program, path = shlex.split(process.command or "")
        if program != "git-upload-pack":
            process.exit(128)
            return
        git = await asyncio.create_subprocess_exec(
            *("git", "upload-pack", path),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=ENVIRONMENT,
        )
        asking = asyncio.create_task(_pump(process.stdin, git.stdin))
        await asyncio.gather(_pump(git.stdout, process.stdout), _pump(git.stderr, process.stderr))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        process.exit(await git.wait())

    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[str(host.folder / "host")],
        authorized_client_keys=str(host.folder / "user.pub"),
        process_factory=run,
        encoding=None,
    )
    async with server:
        host.port = server.get_port()
        started.set()
        await stop.wait()
