"""Git's own program, for what needs a network: no prompt, no user configuration, no secret in an argument."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.request import getproxies, proxy_bypass

from controller.api.parsing.git_url import Transport
from controller.runtime.process.limited_child import (
    NOT_FOUND,
    ChildResult,
    ProcessLimits,
    TooMuchOutputError,
    run,
)
from controller.runtime.reconciling.setbacks import Failed, Stalled
from controller.sources.git_cli.git_complaints import LIMIT, explain, is_damage, limit_of, reason_of
from controller.sources.git_cli.git_environment import environment, secret_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from controller.api.parsing.git_url import Location
    from controller.runtime.tenancy.hosts import Hosts
    from controller.sources.deadline import Deadline
    from controller.sources.git_cli.git_credentials import Credentials

NOT_FOUND_REASON: Final = "RepositoryNotFound"
NO_GIT_SERVER: Final = (
    "the answer is not that of a Git server; the URL may be that of a web page, or of a login"
)
_NO_SERVER: Final = "is this a git repository?"
_LOOSE: Final = 20
"""Objects in one of 256 folders: git tidies up from 28 on."""
_PACKS: Final = 40
"""Git tidies up from 51 on. For each of them there are two files at least."""


class BrokenMirrorError(Exception):
    """Git found its own copy damaged; the remote is not to blame."""


@dataclass(frozen=True, slots=True)
class GitProgram:
    """Git, ready to ask one location as one identity; two with the same of both are equal."""

    location: Location
    credentials: Credentials | None
    deadline: Deadline = field(compare=False)
    """Of the reconcile that the program runs for."""
    limits: ProcessLimits = field(default_factory=ProcessLimits, compare=False)
    hosts: Hosts | None = field(default=None, compare=False)
    """Where remotes may be; None: anywhere."""

    async def list_references(self, *patterns: str) -> str:
        """What `git ls-remote --symref` prints; options such as `--heads` narrow it. Raises `Setback`."""
        arguments = ("ls-remote", "--symref", *patterns, "--end-of-options", self.location.url)
        listing = (await self._run(arguments)).output
        if not listing.strip() and self.location.transport in {Transport.HTTP, Transport.HTTPS}:
            # Git takes a page without line breaks for an empty repository.
            traced = await self._run(arguments, {"GIT_TRACE_PACKET": "2"})
            if "packet:" not in traced.complaint:
                raise Failed(NOT_FOUND_REASON, f"{self.location.shown}: {NO_GIT_SERVER}")
        return listing.decode("utf-8", "replace")

    async def fetch(self, mirror: Path, *refspecs: str, depth: int | None = 1, whole: bool = False) -> None:
        """Fetch into `mirror`, which is never cut if `whole`. Raises `Setback`, or `BrokenMirrorError`."""
        shallow = () if depth is None else (f"--depth={depth}",)
        cut = () if whole else ("--update-shallow",)
        tidied = (
            "--auto-maintenance" if await asyncio.to_thread(is_crowded, mirror) else "--no-auto-maintenance"
        )
        arguments = (
            f"--git-dir={mirror}",
            *("fetch", "--quiet", "--no-tags", "--force", tidied, *cut),
            *("--no-write-fetch-head", "--no-recurse-submodules", *shallow),
            *("--end-of-options", self.location.url, *refspecs),
        )
        await self._run(arguments)

    async def _run(self, arguments: tuple[str, ...], more: Mapping[str, str] | None = None) -> ChildResult:
        where = self.location.shown
        try:
            async with secret_files(self.credentials) as folder, self.deadline.limit():
                variables = environment(self.location, self.credentials, folder, await self._host_settings())
                command = ("git", *arguments)
                ended = await run(command, {**variables, **(more or {})}, self.limits, self.deadline.left)
        except TooMuchOutputError as error:
            message = f"{where}: more than {self.limits.output_bytes} bytes of references"
            raise Stalled(LIMIT, message) from error
        except OSError as error:
            message = f"{where}: git could not be started: {error.strerror or error}"
            raise Failed("StorageOperationFailed", message) from error
        if ended.status == 0:
            return ended
        raise self._failure(ended)

    async def _host_settings(self) -> list[tuple[str, str]]:
        """Configuration that keeps git to judged addresses. Raises Setback for a host that is denied."""
        if self.hosts is None or self.location.path is not None:
            return []
        host, port = self.location.server
        # A redirect would lead to a host that was not checked.
        confined = [("http.followRedirects", "false")]
        if self._is_proxied(host):
            self.hosts.require_name(host)
            return confined
        addresses = await self.hosts.addresses(host, port)
        return [*confined, ("http.curloptResolve", f"{host}:{port}:{','.join(addresses)}")]

    def _is_proxied(self, host: str) -> bool:
        if self.location.transport is Transport.SSH:
            return False
        if self.credentials is not None and self.credentials.proxy:
            return True
        return self.location.transport.value in getproxies() and not proxy_bypass(host)

    def _failure(self, ended: ChildResult) -> Exception:
        where, complaint = self.location.shown, ended.complaint
        if ended.status == NOT_FOUND:
            return Stalled("GitMissing", "the program git is not installed")
        if (limit := limit_of(complaint)) is not None:
            return Stalled(
                LIMIT, f"{where}: git needs more {limit} than it may use ({self._limit_text(limit)})"
            )
        text = explain(complaint, self.credentials)
        if _NO_SERVER in complaint:
            text = f"{NO_GIT_SERVER} ({text})"
        if is_damage(complaint):
            return BrokenMirrorError(text)
        return Failed(reason_of(complaint), f"{where}: {text}")

    def _limit_text(self, limit: str) -> str:
        allowed = {
            "memory": f"{self.limits.memory_bytes} bytes",
            "file size": f"{self.limits.file_bytes} bytes for one file",
            "CPU time": f"{self.deadline.seconds:g} seconds",
        }
        return allowed[limit]


def is_crowded(mirror: Path) -> bool:
    """Whether git might have to tidy up: to find that it need not costs a tenth of a small fetch."""
    loose, packs = mirror / "objects" / "17", mirror / "objects" / "pack"
    return _count(loose) > _LOOSE or _count(packs) > 2 * _PACKS


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0
