"""Git's own program, for what needs a network: no prompt, no user configuration, no secret in an argument, a deadline.

Driven through GitPython, which starts it; reading, deadlines and bounds are ours, since GitPython's need `ps` and know no
bound.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import IO, TYPE_CHECKING, cast

from git.cmd import Git

from controller.runtime.setbacks import Failed, Stalled
from controller.sources.isolation import DROPPED, environment, secret_files
from controller.sources.programs import Programs

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from controller.sources.location import Credentials, Location

MOST_OUTPUT = 32 * 1024**2
"""Bytes; about 400,000 references."""
UNADVERTISED = "ObjectNotAdvertised"
"""The reason where a server gives out only what its references point at."""
_MOST_COMPLAINT = 64 * 1024

_COMPLAINTS = (
    ("HostKeyRefused", r"host key verification failed|host key for .* has changed"),
    (
        "AuthenticationFailed",
        r"authentication failed|could not read (username|password)|permission denied \("
        r"|returned error: 40[137]|access denied|invalid credentials|CONNECT tunnel failed, response 407"
        r"|incorrect passphrase",
    ),
    (
        "CertificateRefused",
        r"certificate verification failed|certificate problem|unable to get local issuer|alert (unknown ca|certificate"
        r"|bad certificate|handshake failure)|self[- ]signed certificate|could not load (pem )?client cert",
    ),
    (
        "RepositoryNotFound",
        r"repository '.*' not found|does not appear to be a git repository|no such file or directory"
        r"|returned error: 404|repository not found|project .* could not be found|does not exist",
    ),
    (UNADVERTISED, r"unadvertised object"),
    ("RevisionGone", r"couldn't find remote ref|not our ref"),
)
_TELLING = re.compile(
    # What ssh says bears no such word, and git's own word about it says nothing.
    r"^(fatal|error|remote):|" + "|".join(pattern for _, pattern in _COMPLAINTS),
    re.IGNORECASE,
)
_BROKEN = re.compile(
    r"bad object|corrupt|loose object|inflate|unable to read|not a git repository: |bad config"
    r"|did not send all necessary objects|unresolved deltas|shallow file"
    r"|is not a valid object|missing (blob|tree|commit)|reference broken|broken ref"
    # Left by a git that was killed: whoever runs git on a mirror holds its lock, so nobody else is at work.
    r"|\.lock': File exists"
)


class BrokenMirrorError(Exception):
    """Git found its own copy damaged; the remote is not to blame."""


@dataclass(frozen=True, slots=True)
class GitProgram:
    """Git, ready to ask one location as one identity. Calls block: run them in a thread."""

    location: Location
    credentials: Credentials | None
    timeout: float
    """Seconds for one run."""
    programs: Programs = field(default_factory=Programs, compare=False, repr=False)
    """Among which each run is, so that it ends with its owner."""

    def list_references(self, *patterns: str) -> str:
        """What `git ls-remote --symref` prints; options such as `--heads` narrow it. Raises `Setback`."""
        arguments = ("ls-remote", "--symref", *patterns, "--end-of-options", self.location.url)
        return self._run(arguments).decode("utf-8", "replace")

    def fetch(self, mirror: Path, *refspecs: str, depth: int | None = 1) -> None:
        """Fetch into the bare repository `mirror`. Raises `Setback`, or `BrokenMirrorError`."""
        shallow = () if depth is None else (f"--depth={depth}",)
        self._run(
            (
                f"--git-dir={mirror}",
                *("fetch", "--quiet", "--no-tags", "--force", "--update-shallow"),
                *("--no-write-fetch-head", "--no-recurse-submodules", *shallow),
                *("--end-of-options", self.location.url, *refspecs),
            )
        )

    def _run(self, arguments: tuple[str, ...]) -> bytes:
        unset = [part for name in DROPPED for part in ("-u", name)]
        with self._disk(), secret_files(self.credentials) as folder:
            # In the root folder no repository's own configuration is found.
            started = Git("/").execute(
                ["env", *unset, "git", *arguments],
                as_process=True,
                env=environment(self.location, self.credentials, folder),
                start_new_session=True,
            )
            process = cast("subprocess.Popen[bytes]", started.proc)
            status, output, complaint = _collect(process, self.timeout, self.programs)
        if status == 0:
            return output
        raise self._setback(status, complaint.decode("utf-8", "replace"))

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            message = f"{self.location.shown}: git could not be started: {error.strerror or error}"
            raise Failed("StorageOperationFailed", message) from error

    def _setback(self, status: int, complaint: str) -> Exception:
        where = self.location.shown
        ended = {
            _OVERDUE: ("Timeout", f"no answer within {self.timeout:g} seconds"),
            _TOO_MUCH: ("LimitExceeded", f"more than {MOST_OUTPUT} bytes of references"),
            _STOPPED: ("Stopped", "we were told to stop before git had an answer"),
        }
        if status in ended:
            reason, why = ended[status]
            return Failed(reason, f"{where}: {why}")
        if status == 127:
            return Stalled("GitMissing", "the program git is not installed")
        text = shown_complaint(complaint, self.credentials)
        ours = "\n".join(line for line in complaint.splitlines() if not line.startswith("remote:"))
        if _BROKEN.search(ours):
            return BrokenMirrorError(text)
        for reason, pattern in _COMPLAINTS:
            if re.search(pattern, complaint, re.IGNORECASE):
                return Failed(reason, f"{where}: {text}")
        return Failed("GitOperationFailed", f"{where}: {text}")


_OVERDUE = -1001
_TOO_MUCH = -1002
_STOPPED = -1003


def _collect(
    process: subprocess.Popen[bytes], timeout: float, programs: Programs
) -> tuple[int, bytes, bytes]:
    """Exit status (or `_OVERDUE`, `_TOO_MUCH`, `_STOPPED`), standard output and error, both bounded."""
    ended: list[int] = []

    def end(status: int) -> None:
        if process.returncode is None:
            ended.append(status)
            # Its group: git's transport runs in children, and ssh in theirs.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    complaint = bytearray()
    if process.stdout is None or process.stderr is None:
        raise RuntimeError("git was started without pipes")
    reader = threading.Thread(
        target=_drain, args=(process.stderr, complaint, _MOST_COMPLAINT), daemon=True
    )
    watchdog = threading.Timer(timeout, end, args=(_OVERDUE,))
    reader.start()
    watchdog.start()
    try:
        with programs.running(partial(end, _STOPPED)):
            output = process.stdout.read(MOST_OUTPUT + 1)
            if len(output) > MOST_OUTPUT:
                end(_TOO_MUCH)
            reader.join()
            status = process.wait()
    finally:
        watchdog.cancel()
        process.stdout.close()
        process.stderr.close()
    return (ended[0] if ended else status), output, bytes(complaint)


def _drain(stream: IO[bytes], into: bytearray, most: int) -> None:
    while chunk := stream.read(8192):
        into += chunk[: most - len(into)]


def shown_complaint(text: str, credentials: Credentials | None) -> str:
    """Git's last words, fit to be shown: no URL's user part or query, no password however written, no measured time, one line."""
    text = re.sub(r"(://)[^/@\s']+@", r"\1", text)
    text = re.sub(r"(://[^\s'?]+)\?[^\s']*", r"\1", text)
    # The same failure again has the same words, or each would be news.
    text = re.sub(r" after \d+ (?:ms|milliseconds|seconds)\b", "", text)
    for hidden in credentials.secrets if credentials is not None else ():
        text = text.replace(hidden, "***")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = [line for line in lines if _TELLING.search(line)] or lines
    joined = "; ".join(chosen[-4:]) or "git gave no reason"
    return "".join(c if c.isprintable() else " " for c in joined)[:500]
