"""Which pod has an address, and which flag sets it may have, as the proxy says.

An answer holds for the connections that it was asked for, and is asked for again every minute; a connection
that comes later is asked about anew, since another pod may have the address by then. While the proxy does not
answer, the last answers hold, an hour at most, also after a restart: they are saved.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from evaluator.host import durable
from evaluator.http.messages import Code, RpcError, host_of
from evaluator.wire.delivery import IDENTIFY, Ask, AskFailed
from evaluator.wire.delivery_pb2 import AskedPod, IdentifyRequest, IdentifyResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

log = logging.getLogger(__name__)

FRESH: Final = 5.0
"""Seconds for which an answer holds for a new connection, too: no address has another pod within these."""
AGAIN: Final = 60.0
"""Seconds until the proxy is asked about all known addresses again."""
OUTAGE: Final = 3_600.0
"""Seconds for which an answer holds while the proxy does not answer."""
MOST_ADDRESSES: Final = 2_000
MOST_CONNECTIONS: Final = 1_000
"""Connections of one address that are remembered; beyond, each is asked about again."""
_MOST_BYTES: Final = 16_777_216


class AskedAddress(NamedTuple):
    """A question: who has this address, and may it have this flag set?"""

    address: str
    selector: str
    """Empty: what the pod was given at its creation."""


class PodAnswer(NamedTuple):
    """What the proxy says."""

    namespace: str = ""
    pod: str = ""
    uid: str = ""
    flag_sets: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(slots=True)
class KnownPod:
    """An answer, with the times of its use."""

    answer: PodAnswer
    at: float
    used: float
    connections: set[str] = field(default_factory=set)


class PodAddresses:
    """The answers of one evaluator."""

    def __init__(
        self,
        ask: Ask,
        clock: Callable[[], float],
        path: Path | None,
        changed: Callable[[str], None] = lambda _address: None,
        again: float = AGAIN,
    ) -> None:
        """clock: Unix seconds. path: the file of answers; None: they are not saved. changed: called with an
        address whose pod, or what it may have, has changed. again: seconds until all are asked about again.
        """
        self.changed = changed
        self._ask, self._clock, self._path, self._again = ask, clock, path, again
        self._known: dict[AskedAddress, KnownPod] = {}
        self._asking: dict[AskedAddress, asyncio.Task[PodAnswer]] = {}

    @property
    def pods(self) -> set[PodAnswer]:
        """The pods that are known, with the flag sets of each."""
        return {known.answer for known in self._known.values() if not known.answer.refusal}

    def known(self, peer: str, selector: str) -> PodAnswer | None:
        """The answer for a connection; None: it must be asked for."""
        found = self._known.get(AskedAddress(host_of(peer), selector))
        now = self._clock()
        if found is None or not (found.at > now - FRESH or peer in found.connections):
            return None
        return self._use(found, peer)

    async def find(self, peer: str, selector: str) -> PodAnswer:
        """Ask for the answer for a connection. Raises RpcError where nobody knows it."""
        asked = AskedAddress(host_of(peer), selector)
        task = self._asking.get(asked)
        if task is None:
            task = self._asking[asked] = asyncio.ensure_future(self._find(asked))
            task.add_done_callback(lambda _: self._asking.pop(asked, None))
        answer = await asyncio.shield(task)
        if (found := self._known.get(asked)) is not None:
            self._use(found, peer)
        return answer

    async def load(self) -> list[PodAnswer]:
        """Return the answers of an earlier process, which hold until they are asked for again."""
        if self._path is None:
            return []
        saved = await asyncio.to_thread(durable.load, self._path, _MOST_BYTES, _decode)
        self._known = saved or {}
        return list(self.pods)

    async def run(self) -> None:
        """Ask about all known addresses again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._again)
            try:
                await self._ask_about(list(self._known))
            except AskFailed as failure:
                log.warning("pods of this node are not known anew: %s", failure)
            self._forget()

    async def reach(self) -> None:
        """Ask about nothing. Raises AskFailed where the proxy does not answer."""
        await self._ask_about([])

    def _forget(self) -> None:
        """Forget pods that are gone, and those of which nothing was heard for too long."""
        latest = self._clock() - OUTAGE
        for asked, known in tuple(self._known.items()):
            if known.answer.refusal or known.at <= latest:
                del self._known[asked]
                self.changed(asked.address)

    def _use(self, found: KnownPod, peer: str) -> PodAnswer:
        found.used = self._clock()
        if found.answer.refusal:
            return found.answer
        if len(found.connections) >= MOST_CONNECTIONS:
            found.connections.clear()
        found.connections.add(peer)
        return found.answer

    async def _find(self, asked: AskedAddress) -> PodAnswer:
        try:
            answers = await self._ask_about([asked])
        except AskFailed as failure:
            found = self._known.get(asked)
            if found is not None and found.at > self._clock() - OUTAGE:
                return found.answer
            raise RpcError(
                Code.UNAVAILABLE, f"the proxy cannot be asked which pod this is: {failure}"
            ) from None
        return answers[0]

    async def _ask_about(self, questions: Sequence[AskedAddress]) -> list[PodAnswer]:
        request = IdentifyRequest(asked=[AskedPod(address=a, selector=s) for a, s in questions])
        response = IdentifyResponse.FromString(await self._ask(IDENTIFY, request.SerializeToString()))
        answers = [
            PodAnswer(pod.namespace, pod.pod, pod.pod_uid, tuple(pod.flag_sets), pod.refusal)
            for pod in response.pods
        ]
        if len(answers) != len(questions):
            raise AskFailed("its answer has another number of pods")
        news = [self._take(asked, answer) for asked, answer in zip(questions, answers, strict=True)]
        if any(news) and self._path is not None:
            content = orjson.dumps(
                [[*asked, *known.answer, known.at] for asked, known in self._known.items()]
            )
            try:
                await asyncio.to_thread(durable.save, self._path, content)
            except OSError as error:
                log.warning("%s: pods of this node cannot be saved: %s", self._path, error.strerror)
        return answers

    def _take(self, asked: AskedAddress, answer: PodAnswer) -> bool:
        """Note an answer; return whether it is another one than before."""
        now, before = self._clock(), self._known.get(asked)
        if before is not None and before.answer == answer:
            before.at = now
            return False
        if len(self._known) >= MOST_ADDRESSES:
            del self._known[min(self._known, key=lambda each: self._known[each].used)]
        self._known[asked] = KnownPod(answer, now, now)
        if before is not None:
            self.changed(asked.address)
        return True


def _decode(content: bytes) -> dict[AskedAddress, KnownPod]:
    """The answers of a file. Raises ValueError."""
    known = {}
    for address, selector, namespace, pod, uid, flag_sets, refusal, at in orjson.loads(content):
        answer = PodAnswer(namespace, pod, uid, tuple(flag_sets), refusal)
        known[AskedAddress(address, selector)] = KnownPod(answer, at, at)
    return known
