"""Git's own program: no prompt, no user configuration, no secret in an argument."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from controller.api.addresses import Location, Transport
from controller.runtime.limited_child import NOT_FOUND, ChildResult, ProcessLimits, TooMuchOutputError, run
from controller.runtime.plain_text import one_line
from controller.runtime.setbacks import Failed, Stalled
from controller.runtime.temporary import TemporaryFolder
from controller.sources.backend import LineAuthor, Revision
from controller.sources.git_credentials import LIMIT, Credentials, explain, is_damage, limit_of, reason_of
from evaluator.host.system_proxies import system_proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from pathlib import Path

    from controller.runtime.hosts import Hosts
    from controller.sources.deadline import Deadline


# Asked by git for one origin only, so a redirect to another host is given nothing; the secret stays in the
# environment.
_ASKED = '!f() { printf "username=%s\\npassword=%s\\n" "$FLAGSTAFF_USERNAME" "$FLAGSTAFF_PASSWORD"; }; f'

_ASKPASS = """#!/bin/sh
printf '%s\\n' "$FLAGSTAFF_KEY_PASSWORD"
"""
"""Asked by ssh; the password itself stays in the environment."""
_TLS: Final = {"ca.crt": "http.sslCAInfo", "tls.crt": "http.sslCert", "tls.key": "http.sslKey"}
"""Files of the credentials' Tls, in the order of its fields, and the options of git that name them."""
_SSH_USER = "git"
"""As with Flux, and as every forge has it."""


def environment(
    location: Location,
    credentials: Credentials | None,
    folder: Path | None,
    more: Iterable[tuple[str, str]] = (),
) -> dict[str, str]:
    """All of git's environment; `folder` is that of `secret_files`, `more` is configuration beside ours."""
    configuration = [
        *more,
        ("protocol.version", "2"),
        # A few small limits keep git's address space near to what a repository of flags needs.
        ("pack.threads", "1"),
        ("core.packedGitWindowSize", "16m"),
        ("core.packedGitLimit", "64m"),
        ("core.hooksPath", os.devnull),
        ("gc.autoDetach", "false"),
        ("maintenance.autoDetach", "false"),
        ("gc.pruneExpire", "1.hour.ago"),
        ("credential.helper", ""),
    ]
    result = {
        **_own_variables(),
        "MALLOC_ARENA_MAX": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "GIT_ALLOW_PROTOCOL": location.transport.value,
        "GIT_OPTIONAL_LOCKS": "0",
        # No .netrc and no .curlrc; ssh finds the user's own folder by itself.
        "HOME": "/nonexistent",
        "XDG_CONFIG_HOME": "/nonexistent",
    }
    if credentials is not None and location.transport in {Transport.HTTP, Transport.HTTPS}:
        configuration += _http(location, credentials, folder)
        result["FLAGSTAFF_USERNAME"] = credentials.username
        result["FLAGSTAFF_PASSWORD"] = credentials.password
        if credentials.proxy:
            result["NO_PROXY"] = result["no_proxy"] = ""
    if location.transport is Transport.SSH:
        user = "" if "@" in location.url else _SSH_USER
        result["GIT_SSH_COMMAND"] = ssh_command(credentials, folder, user)
        if credentials is not None and credentials.key_password:
            result["FLAGSTAFF_KEY_PASSWORD"] = credentials.key_password
        result["GIT_SSH_VARIANT"] = "ssh"
    result["GIT_CONFIG_COUNT"] = str(len(configuration))
    for index, (key, value) in enumerate(configuration):
        result[f"GIT_CONFIG_KEY_{index}"] = key
        result[f"GIT_CONFIG_VALUE_{index}"] = value
    return result


def _own_variables() -> dict[str, str]:
    """Our own environment, such as proxies and ssh's agent, without what would redirect git or weaken it."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") and name != "SSH_ASKPASS"
    }


def _http(location: Location, credentials: Credentials, folder: Path | None) -> list[tuple[str, str]]:
    """In the environment, which only we and root can read, as all may read a program's arguments."""
    configuration = []
    if credentials.username:
        configuration.append((f"credential.{location.origin}.helper", _ASKED))
    if credentials.bearer:
        header = f"Authorization: Bearer {credentials.bearer}"
        # Git would send the header on to wherever it is redirected.
        configuration += [(f"http.{location.origin}.extraHeader", header), ("http.followRedirects", "false")]
    if credentials.proxy:
        configuration.append(("http.proxy", credentials.proxy))
    if folder is not None:
        files = zip(_TLS.items(), credentials.tls, strict=True)
        configuration += [(key, str(folder / file)) for (file, key), text in files if text]
    return configuration


def ssh_command(credentials: Credentials | None, folder: Path | None, user: str = "") -> str:
    """The user's own keys and known hosts, unless the credentials bring theirs; `user`: of a given key."""
    words = ["ssh", "-o", "StrictHostKeyChecking=yes"]
    asks = folder is not None and credentials is not None and bool(credentials.key_password)
    if folder is not None and asks:
        # In batch mode ssh would not ask for the key's password, and it must ask for nothing else.
        words[:0] = ["env", f"SSH_ASKPASS={folder / 'askpass'}", "SSH_ASKPASS_REQUIRE=force"]
        words += ["-o", "NumberOfPasswordPrompts=1", "-o", "PreferredAuthentications=publickey"]
    else:
        words += ["-o", "BatchMode=yes"]
    if folder is not None and credentials is not None:
        if credentials.known_hosts:
            words += ["-o", f"UserKnownHostsFile={folder / 'known_hosts'}"]
            words += ["-o", f"GlobalKnownHostsFile={os.devnull}"]
        if credentials.ssh_key:
            words += ["-F", os.devnull, "-i", str(folder / "key")]
            words += ["-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none"]
            words += ["-o", f"User={user}"] if user else []
    return shlex.join(words)


@contextlib.asynccontextmanager
async def secret_files(credentials: Credentials | None) -> AsyncIterator[Path | None]:
    """A folder with what the credentials have for files; None: nothing. Raises OSError."""
    texts = _texts(credentials) if credentials is not None else {}
    if not texts:
        yield None
        return
    folder = await asyncio.to_thread(_write_files, texts)
    try:
        yield folder.path
    finally:
        await asyncio.to_thread(folder.remove)


def _write_files(texts: Mapping[str, str]) -> TemporaryFolder:
    folder = TemporaryFolder.make()
    try:
        for file, text in texts.items():
            # ssh refuses a key that others may read, and one whose last line does not end.
            mode = 0o700 if file == "askpass" else 0o600
            descriptor = os.open(folder.path / file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
                opened.write(text.rstrip("\n") + "\n")
    except BaseException:
        folder.remove()
        raise
    return folder


def _texts(credentials: Credentials) -> dict[str, str]:
    texts = {
        "key": credentials.ssh_key,
        "known_hosts": credentials.known_hosts,
        "askpass": _ASKPASS if credentials.key_password else "",
        **dict(zip(_TLS, credentials.tls, strict=True)),
    }
    return {file: text for file, text in texts.items() if text}


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

    @property
    def too_long(self) -> str:
        """The problem where the references take too many bytes."""
        return f"{self.location.shown}: more than {self.limits.output_bytes} bytes of references"

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
            raise Stalled(LIMIT, self.too_long) from error
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
        return bool(system_proxy(self.location.transport.value, host))

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


_MAX_TEXT: Final = 200


def blame_line(path: Path, location: Location, revision: Revision, file: str, line: int) -> LineAuthor | None:
    """The last change of `line` (from 1) of `file` at `revision`; None where git finds none. Blocks."""
    # GitPython takes long to load, and a source without problems never needs it.
    from git import Repo  # noqa: PLC0415
    from git.exc import GitError  # noqa: PLC0415

    commit = revision.digest.removeprefix("sha1:")
    try:
        with Repo(path) as repository:
            repository.git.update_environment(**environment(location, None, None))
            hunk = next(repository.blame_incremental(commit, file, L=f"{line},{line}"), None)
            if hunk is None:
                return None
            changed = hunk.commit
            author = f"{changed.author.name} <{changed.author.email}>"
            return LineAuthor(
                changed.hexsha, one_line(author, _MAX_TEXT), one_line(str(changed.summary), _MAX_TEXT)
            )
    except (GitError, ValueError, OSError):
        # No such line or file, or a repository that GitPython cannot read: there is no author to name.
        return None
