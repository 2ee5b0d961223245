"""Who serves the flags of `flagstaff up`: this process, and the evaluators that follow its sync port. They
send the receipts that a proxy gets, which are counted as a proxy counts them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from controller.api import featureflagconfiguration, flagset
from controller.api.flagreceipt import OBSERVED_AT
from controller.api.meta import ObjectKey, Resource
from controller.configurations.live_proxies import LiveProxies
from controller.local.local_objects import FLAG_SET, NAMESPACE
from controller.proxy.contents import SetPart
from controller.proxy.members import MemberIdentity, MemberReport
from controller.proxy.receipts import ExpectedDigest, MemberClaims, Receipts
from controller.proxy.recording import SETTLE, Recorder, RecorderTiming
from controller.proxy.users import Caller, bearer
from controller.runtime.clock import now, unix_time
from controller.runtime.queue import KeyedQueue
from controller.runtime.setbacks import Stalled
from evaluator.host.times import parse_time
from evaluator.http.messages import Call, Code, RpcError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from pathlib import Path

    from controller.delivery.claims import Place
    from controller.runtime.cache import Cache, MemoryCluster

log = logging.getLogger(__name__)

_PROXY: Final = "local"
"""The name under which this process records who serves what."""
_THIS: Final = "this process"
_TICK: Final = 1.0
"""Seconds. This process reports itself so often, as no member may be silent, and looks at its tokens."""
_RETURN: Final = 10.0
"""Seconds after a restart in which evaluators connect again."""
_AWAITED: Final = MemberIdentity("", "", "", "whoever connects again", verified=True)
_TIMING: Final = RecorderTiming(pace=0.2)
"""What is written stays in memory."""


class _NoPods:
    """Members are processes of machines. Implements `Pods`."""

    def has_ended(self, uid: str) -> bool:
        """No pod is known to have ended."""
        del uid
        return False


class FleetTokens:
    """A file of bearer tokens. A line is `NAME TOKEN`, or a token alone, which proves no name."""

    def __init__(self, path: Path) -> None:
        """Raises Stalled for a file that cannot be used."""
        self._path = path
        self._fault = ""
        self._text = self._read()
        self._names = _names_by_digest(self._text, path)

    def name_of(self, token: str) -> str | None:
        """The name that a token proves, empty where it proves none; None: the file does not have it."""
        # Digests are looked up: how long that takes says nothing about tokens.
        return self._names.get(hashlib.sha256(token.encode()).digest())

    def refresh(self) -> None:
        """Read the file again. What cannot be used is logged once; then the earlier tokens stay valid."""
        try:
            text = self._read()
            if text != self._text:
                self._names = _names_by_digest(text, self._path)
                self._text = text
            self._fault = ""
        except Stalled as setback:
            if self._fault != setback.message:
                self._fault = setback.message
                log.error("%s; the tokens that were read before stay valid", setback.message)  # noqa: TRY400

    def _read(self) -> str:
        try:
            return self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            raise Stalled("InvalidTokens", f"--tokens: {self._path} cannot be read: {why}") from error


def _names_by_digest(text: str, path: Path) -> dict[bytes, str]:
    """Names by the digests of their tokens. Raises Stalled."""
    names: dict[bytes, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) > 2 or not all(word.isprintable() for word in words) or not words[-1].isascii():
            message = f"--tokens: {path}:{number}: write NAME TOKEN, or a token alone, in ASCII"
            raise Stalled("InvalidTokens", message)
        digest = hashlib.sha256(words[-1].encode()).digest()
        if digest in names:
            raise Stalled("InvalidTokens", f"--tokens: {path}:{number}: an earlier line has this token")
        names[digest] = words[0] if len(words) == 2 else ""
    if not names:
        raise Stalled("InvalidTokens", f"--tokens: {path} has no token; write NAME TOKEN, one a line")
    return names


class LocalFleet:
    """Implements `StreamObserver` of the sync port, whose callers it also identifies."""

    def __init__(self, objects: Cache, cluster: MemoryCluster, tokens: FleetTokens | None = None) -> None:
        """Without tokens, everybody may read and report."""
        self._objects = objects
        self._tokens = tokens
        queue: KeyedQueue[Place] = KeyedQueue(asyncio.get_running_loop().time, random.random)
        self.proxies = LiveProxies()
        self.proxies.track(_PROXY, 0.0)
        self.receipts = Receipts(
            parts=self._parts,
            expected=self._expected,
            caller=self.caller,
            pods=_NoPods(),
            clock=unix_time,
            changed=lambda place: queue.put(place, SETTLE),
        )
        self._recorder = Recorder(self.receipts, cluster, _PROXY, NAMESPACE, now, queue, _TIMING)
        self._self = MemberIdentity("", "", "", _THIS, version=version("flagstaff"), verified=True)
        self._served = MemberReport()
        self.digest_behind: Callable[[str], str] = str
        """Returns the digest, without overrides of the command line, of the set with this digest."""
        self._awaits = False

    async def await_members(self) -> None:
        """A process before this one served flags: until its evaluators had time to connect again, one more
        is counted that serves nothing, so that no step of a rollout ends.
        """
        self._awaits = True
        self._report_itself()
        if (place := self._place) is not None:
            # A rollout waits for nobody while there is no receipt at all.
            await self._recorder.write(place)

    def serve(self, digest: str, revision: str) -> None:
        """This process serves the set with this digest now."""
        if digest != self._served.digest:
            replaced = bool(self._served.digest)
            self._served = MemberReport(digest, revision, served_at=unix_time(), replaced=replaced)
        self._report_itself()

    async def run(self) -> None:
        """Record who serves what, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._recorder.record())
            tasks.create_task(self._tick())
            if self._awaits:
                tasks.create_task(self._stop_awaiting())

    def begin(self, call: Call, topic: Hashable, *, lasting: bool) -> Callable[[], None] | None:
        """Count a stream of updates. Raises RpcError for a caller that may not read."""
        del topic
        self.caller(call)
        place = self._place
        return self.receipts.follow(place, call) if lasting and place is not None else None

    def end(self, visit: object) -> None:
        """Uncount a stream that has ended."""
        if callable(visit):
            visit()

    def caller(self, call: Call) -> Caller:
        """Who calls: the name of its token, or else of its certificate. Raises RpcError UNAUTHENTICATED where
        tokens are asked for, and the call has none of them.
        """
        name: str | None = ""
        if self._tokens is not None:
            token = bearer(call)
            name = None if token is None else self._tokens.name_of(token)
        if name is None:
            raise RpcError(Code.UNAUTHENTICATED, "send one of the bearer tokens that are in up's --tokens")
        name = name or call.client
        return Caller(pod=name, verified=bool(name))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self._report_itself()
            if self._tokens is not None:
                await asyncio.to_thread(self._tokens.refresh)

    def _report_itself(self) -> None:
        place = self._place
        if place is not None and self._served.digest:
            self.receipts.record(place, self._self, self._served, "", unix_time())
            if self._awaits:
                self.receipts.record(place, _AWAITED, MemberReport(), "", unix_time())

    async def _stop_awaiting(self) -> None:
        await asyncio.sleep(_RETURN)
        self._awaits = False
        for place in self.receipts.places():
            subscribers = self.receipts.subscribers(place)
            if subscribers is not None:
                subscribers.membership.remove(_AWAITED)

    def _parts(self, selector: str, call: Call, claims: MemberClaims) -> Sequence[SetPart]:
        self.caller(call)
        place = self._place
        # Whoever follows a part of the set has a digest of its own, which nothing could be compared with.
        if place is None or selector.startswith("flagSetId="):
            return ()
        return (SetPart(place, self.digest_behind(claims.digest), claims.revision),)

    def _expected(self, place: Place) -> ExpectedDigest | None:
        owner = self.target()
        if owner is None or place != self._place:
            return None
        observed = parse_time(owner.annotations.get(OBSERVED_AT))
        seconds = None if observed is None else observed.timestamp()
        return ExpectedDigest(owner, self._served.digest, seconds)

    @property
    def _place(self) -> Place | None:
        target = self.target()
        return None if target is None else (target.namespace, target.name)

    def target(self) -> Resource | None:
        """The object that delivers the flag set."""
        flag_set = self._objects.get(FLAG_SET)
        name = FLAG_SET.name if flag_set is None else flagset.target_name(flag_set)
        return self._objects.get(ObjectKey(featureflagconfiguration.KIND, NAMESPACE, name))
