"""The references of remotes, listed over HTTP without a process, or by git's program, and shared.

Over HTTP it is one request of Git's protocol, version 2 (gitprotocol-v2, `ls-refs`): its servers keep no
state between two requests, and this one uses no capability that a server may lack. Any answer but a whole
list of references is left to git's program, which asks again: it knows older protocols and other logins, and
has the words for what went wrong.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from controller.api.addresses import Transport
from controller.runtime.http_client import Cause, RequestError, Route, read_all
from controller.runtime.setbacks import Failed, Setback, Stalled
from controller.sources.freshness import SHARED, Freshness
from controller.sources.git_credentials import LIMIT, Credentials
from controller.sources.git_program import BrokenMirrorError, GitProgram
from controller.sources.git_references import References, parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from controller.runtime.http_client import HttpClient
    from controller.runtime.limits import Places

_PREFIXES: Final = {"--heads": b"ref-prefix refs/heads/\n", "--tags": b"ref-prefix refs/tags/\n"}
"""What narrows the answer as options of `git ls-remote` do."""
_ANSWER: Final = "application/x-git-upload-pack-result"
_HEADERS: Final = {
    # Some servers answer no other program than git.
    "User-Agent": "git/flagstaff-controller",
    "Git-Protocol": "version=2",
    "Content-Type": "application/x-git-upload-pack-request",
    "Accept": _ANSWER,
}
_REFERENCE: Final = re.compile(r"([0-9a-f]{40}) ([^\s\x00-\x1f\x7f]+)((?: [^\s\x00-\x1f\x7f]+)*)\n?")
_LONG: Final = 64 * 1024
"""Bytes from which on an answer is read in a thread."""


async def list_over_http(client: HttpClient, program: GitProgram, options: tuple[str, ...]) -> str | None:
    """What `git ls-remote --symref` with `options` prints; None where git's program has to ask.

    Raises Failed (Timeout), and Stalled (LimitExceeded) for more bytes than the program may print.
    """
    location, credentials = program.location, program.credentials or Credentials()
    if location.transport not in {Transport.HTTP, Transport.HTTPS}:
        return None
    if credentials.proxy and not credentials.proxy.startswith("http://"):
        return None
    async with program.deadline.limit():
        try:
            async with client.request(
                "POST",
                f"{location.url.rstrip('/')}/git-upload-pack",
                headers=_HEADERS | _login(credentials),
                data=_question(options),
                route=Route(tls=credentials.tls, proxy=credentials.proxy),
            ) as answer:
                if answer.status != 200 or answer.content_type != _ANSWER:
                    return None
                content = await read_all(answer, program.limits.output_bytes)
        except RequestError as error:
            if error.cause is Cause.TOO_LONG:
                raise Stalled(LIMIT, program.too_long) from error
            return None
        except Setback:
            return None
        return _read(content) if len(content) < _LONG else await asyncio.to_thread(_read, content)


def _login(credentials: Credentials) -> dict[str, str]:
    if credentials.bearer:
        return {"Authorization": f"Bearer {credentials.bearer}"}
    if credentials.username:
        pair = f"{credentials.username}:{credentials.password}"
        return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}
    return {}


def _question(options: tuple[str, ...]) -> bytes:
    arguments = (b"peel\n", b"symrefs\n", *(_PREFIXES[option] for option in options))
    return _packet(b"command=ls-refs\n") + b"0001" + b"".join(map(_packet, arguments)) + b"0000"


def _packet(line: bytes) -> bytes:
    """A pkt-line (gitprotocol-common): its length, with that of the length, and its content."""
    return b"%04x%b" % (len(line) + 4, line)


def _read(content: bytes) -> str | None:
    """The answer as `git ls-remote --symref` prints it; None where it is not a whole list of references."""
    try:
        return "".join(_printed_lines(content))
    except ValueError:
        return None


def _printed_lines(content: bytes) -> Iterator[str]:
    """Raises ValueError."""
    position = 0
    while (size := int(content[position : position + 4], 16)) > 0:
        line = content[position + 4 : position + size].decode("utf-8", "replace")
        reference = _REFERENCE.fullmatch(line)
        if reference is None:
            raise ValueError("not a reference")
        position += size
        value, name, attributes = reference.groups()
        for attribute in attributes.split():
            kind, _, target = attribute.partition(":")
            if kind == "symref-target":
                yield f"ref: {target}\t{name}\n"
            elif kind == "peeled":
                yield f"{target}\t{name}^{{}}\n"
        yield f"{value}\t{name}\n"
    if content[position:] != b"0000":
        raise ValueError("not the end")


_Question: TypeAlias = "tuple[GitProgram, tuple[str, ...]]"


@dataclass(frozen=True, slots=True)
class _Listing:
    began: datetime
    answer: asyncio.Task[References | Setback]
    """Returns setbacks: kopf takes a task that raises while it stops for a failure of the process."""
    namespace: str
    """The one in whose turn it runs."""
    running: asyncio.Event

    def serves(self, freshness: Freshness, namespace: str) -> bool:
        # Another namespace may have to wait much longer for its turn.
        if namespace != self.namespace and not self.running.is_set():
            return False
        # A remote that does not answer is asked by one of its sources at a time, and not by all.
        return self.began >= freshness.since or (freshness.scheduled and not self.answer.done())


@dataclass(slots=True)
class LsRemoteCache:
    """The latest listing of each remote, for as long as it may be shared. Belongs to one event loop."""

    places: Places
    client: HttpClient | None = None
    """Asks remotes that speak HTTP; None: git's program alone asks."""
    _latest: dict[_Question, _Listing] = field(default_factory=dict)

    async def references(
        self, program: GitProgram, options: tuple[str, ...], freshness: Freshness, namespace: str
    ) -> References:
        """The remote's references, asked for now or shared with another source. Raises `Setback`."""
        self._clear(freshness.now)
        question = (program, options)
        known = self._latest.get(question)
        if known is None or not known.serves(freshness, namespace):
            running = asyncio.Event()
            task = asyncio.create_task(self._ask(question, namespace, running))
            known = self._latest[question] = _Listing(freshness.now, task, namespace, running)
        # A caller that is cancelled while it waits must not cancel the others' answer.
        answer = await asyncio.shield(known.answer)
        if isinstance(answer, Setback):
            # Each who waited gets an exception of its own, with its own traceback and cause.
            raise (Stalled if isinstance(answer, Stalled) else Failed)(answer.reason, answer.message)
        return answer

    async def _ask(self, question: _Question, namespace: str, running: asyncio.Event) -> References | Setback:
        program, options = question
        try:
            async with self.places.place(namespace):
                running.set()
                listing = None
                if self.client is not None:
                    listing = await list_over_http(self.client, program, options)
                if listing is None:
                    listing = await program.list_references(*options)
            return await parse(listing, program.location.shown)
        except BrokenMirrorError as error:
            # There is no mirror in a listing: what reads like damage here is the remote's.
            message = f"{program.location.shown}: its references cannot be read: {error}"
            return Failed("GitOperationFailed", message)
        except Setback as setback:
            return setback

    def __len__(self) -> int:
        """The number of listings that are kept or asked for."""
        return len(self._latest)

    def forget(self) -> None:
        """Drop all answers but those that callers wait for: a question holds credentials."""
        for question, listing in tuple(self._latest.items()):
            if listing.answer.done():
                del self._latest[question]

    async def close(self) -> None:
        """Cancel what is asked, with the programs that ask."""
        tasks = [listing.answer for listing in self._latest.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _clear(self, now: datetime) -> None:
        for question, listing in tuple(self._latest.items()):
            # One that began later than now began before the clock was set back.
            if listing.answer.done() and abs(now - listing.began) > SHARED:
                del self._latest[question]
