"""Who may open a stream. Handlers return at once, so a stream whose token is still to be reviewed waits,
without a message.

`off` looks at nothing. `warn` serves everybody at once, and counts and names whom `enforce` would refuse.
`enforce` refuses: UNAUTHENTICATED without a token of this cluster, PERMISSION_DENIED where its user may not
`get` the FeatureFlagConfiguration, UNAVAILABLE while nobody can say.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from controller.proxy.access import bearer
from controller.proxy.seats import Seats, host_of
from controller.proxy.selector import Identified, InvalidSelectorError, Named, Topic, parse
from controller.runtime.setbacks import Failed
from evaluator.http.messages import Code, RpcError, header
from evaluator.wire.messages import SELECTOR_HEADER, read_request

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

    from controller.delivery.claims import Place
    from controller.proxy.access import Access, User
    from controller.proxy.catalog import Catalog
    from evaluator.http.messages import Call, MessageStream
    from evaluator.http.routes import StreamHandler
    from evaluator.wire.messages import Method

_log = logging.getLogger(__name__)

MOST_CLAIMS: Final = 16
"""Objects with one flagSetId that are reviewed for a reader; who comes later waits until one of them goes."""
AGAIN_SECONDS: Final = 2.0
"""After a review that nobody could answer."""
OFF, WARN, ENFORCE = "off", "warn", "enforce"
ALLOWED, NO_TOKEN, INVALID_TOKEN, FORBIDDEN, UNKNOWN = (
    "allowed", "no_token", "invalid_token", "forbidden", "unknown",
)  # fmt: skip
"""What came of a look at a stream's token, as the metric has it."""
_REFUSALS: Final = {
    NO_TOKEN: (
        Code.UNAUTHENTICATED,
        "send a bearer token of your service account in `authorization`",
    ),
    INVALID_TOKEN: (
        Code.UNAUTHENTICATED,
        "the cluster does not know this token, or it has expired",
    ),
    UNKNOWN: (Code.UNAVAILABLE, "the cluster cannot say now whose token this is"),
}


class Witness(Protocol):
    """Who is told whom `enforce` would refuse."""

    def unwelcome(self, place: Place, who: str, why: str) -> None:
        """`who` was served the flags at `place` without the right to. Must not raise."""


@dataclass(frozen=True, slots=True, eq=False)
class Visit:
    """One stream."""

    host: str
    topic: Hashable
    reader: str
    """Whose verdicts hold for it; empty where nobody asks."""


class Guard:
    """Stands before the sync service; implements its `StreamObserver`."""

    def __init__(self, mode: str, access: Access, catalog: Catalog, witness: Witness, seats: Seats) -> None:
        self.mode = mode
        self.seats = seats
        self.looks: Counter[str] = Counter()
        """Streams by what came of the look at their token."""
        self.changed: Callable[[], None] = lambda: None
        """Called when it became known what a reader may read."""
        self.waiting = Seats(seats.most, seats.most_per_host)
        """Streams that wait for a review."""
        self._access = access
        self._catalog = catalog
        self._witness = witness
        self._tasks: set[asyncio.Task[None]] = set()
        self._reviewing: set[tuple[str, Place]] = set()
        self._open: Counter[tuple[str, Hashable]] = Counter()

    @property
    def busy(self) -> bool:
        """Whether anything is being reviewed."""
        return bool(self._tasks)

    # -- before a stream -----------------------------------------------------------------------------------------------

    def stream(self, method: Method, handler: StreamHandler) -> StreamHandler:
        """`handler`, for those who may."""

        def open_stream(call: Call, message: bytes, stream: MessageStream) -> None:
            asked = header(call.headers, SELECTOR_HEADER)
            selector = read_request(message).selector if asked is None else asked
            try:
                topic = parse(selector)
            except InvalidSelectorError as error:
                raise RpcError(Code.INVALID_ARGUMENT, str(error)) from error
            self._let_in(topic, call, stream, partial(handler, call, message, stream))

        return open_stream

    def known(self, handler: StreamHandler) -> StreamHandler:
        """`handler`, for whoever has a token at all."""

        def open_stream(call: Call, message: bytes, stream: MessageStream) -> None:
            self._let_in(None, call, stream, partial(handler, call, message, stream))

        return open_stream

    def _let_in(
        self, topic: Topic | None, call: Call, stream: MessageStream, start: Callable[[], None]
    ) -> None:
        if self.mode != ENFORCE:
            start()
            if self.mode == WARN:
                self._observe(topic, call)
            return
        if bearer(call) is None:
            self.looks[NO_TOKEN] += 1
            raise RpcError(*_REFUSALS[NO_TOKEN])
        if self._allowed_already(topic, call):
            self.looks[ALLOWED] += 1
            start()
            return
        host = host_of(call.peer)
        self.waiting.take(host)
        waiting = self._spawn(self._admit(topic, call, stream, start))
        waiting.add_done_callback(lambda _: self.waiting.give(host))
        stream.on_closed = partial(_cancel, waiting)

    def _allowed_already(self, topic: Topic | None, call: Call) -> bool:
        user = self._access.known(call)
        if user is None or isinstance(topic, Identified):
            return False
        place = None if topic is None else (topic.namespace, topic.name)
        return place is None or self._access.readable(user.reader, place) is True

    async def _admit(
        self,
        topic: Topic | None,
        call: Call,
        stream: MessageStream,
        start: Callable[[], None],
    ) -> None:
        look, who = await self._look(topic, call)
        self.looks[look] += 1
        stream.on_closed = None
        if stream.closed:
            return
        if look != ALLOWED:
            refusal = (Code.PERMISSION_DENIED, f"{who} may not get {topic}")
            stream.close(*_REFUSALS.get(look, refusal))
            return
        try:
            start()
        except RpcError as error:
            stream.close(error.code, error.message)
        except Exception:  # noqa: BLE001 - logged; the port says the same of a handler that fails
            _log.exception("%s failed", call.path)
            stream.close(Code.INTERNAL, "internal error")

    async def _look(self, topic: Topic | None, call: Call) -> tuple[str, str]:
        """What is to be said of a call, and who its user is. Never raises but when cancelled."""
        token = bearer(call)
        if token is None:
            return NO_TOKEN, ""
        try:
            user = await self._access.user(token)
            if user is None:
                return INVALID_TOKEN, ""
            allowed = await self._may(user, topic)
        except Failed as failure:
            _log.warning("a token cannot be reviewed: %s", failure.message)
            return UNKNOWN, ""
        return (ALLOWED if allowed else FORBIDDEN), user.name

    async def _may(self, user: User, topic: Topic | None) -> bool:
        if isinstance(topic, Named):
            return await self._access.may_read(user, (topic.namespace, topic.name))
        if isinstance(topic, Identified):
            # Which of them it gets, its view decides; to wait for one is allowed to all.
            for seen in self._catalog.claims(topic.flag_set_id)[:MOST_CLAIMS]:
                await self._access.may_read(user, seen.place)
        return True

    # -- whose view of flagSetIds ----------------------------------------------------------------------------------------

    def reader(self, call: Call) -> str:
        """Whose view of flagSetIds a call has; empty: of everything."""
        user = self._access.last_known(call) if self.mode == ENFORCE else None
        return "" if user is None else user.reader

    def readable(self, reader: str, place: Place) -> bool | None:
        """Whether `place` is in a reader's view; None: it is asked, and `changed` is called once
        it is known.
        """
        if not reader:
            return self.mode != ENFORCE
        found = self._access.readable(reader, place)
        if found is None:
            self._review(reader, place)
        return found

    def _review(self, reader: str, place: Place) -> None:
        user = self._access.reader(reader)
        if user is not None and (reader, place) not in self._reviewing:
            self._reviewing.add((reader, place))
            self._spawn(self._ask(user, place))

    async def _ask(self, user: User, place: Place) -> None:
        try:
            await self._access.may_read(user, place)
        except Failed:
            await asyncio.sleep(AGAIN_SECONDS)
        finally:
            self._reviewing.discard((user.reader, place))
        self.changed()

    # -- those who are there ---------------------------------------------------------------------------------------------

    def entered(self, call: Call, topic: Hashable, *, lasting: bool) -> Visit:
        """See StreamObserver."""
        visit = Visit(host_of(call.peer), topic, self.reader(call) if lasting else "")
        self.seats.take(visit.host)
        if visit.reader:
            self._open[visit.reader, topic] += 1
        return visit

    def left(self, visit: object) -> None:
        """See StreamObserver."""
        assert isinstance(visit, Visit)  # noqa: S101 - what `entered` returned
        self.seats.give(visit.host)
        if visit.reader:
            key = visit.reader, visit.topic
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]

    async def revoked(self) -> set[tuple[str, Hashable]]:
        """Readers and names of open streams that may no longer be read by them. An API server that does not
        answer revokes nothing.
        """
        found: set[tuple[str, Hashable]] = set()
        for reader, topic in tuple(self._open):
            user = self._access.reader(reader)
            if user is None or not isinstance(topic, Named):
                continue
            try:
                if not await self._access.may_read(user, (topic.namespace, topic.name)):
                    found.add((reader, topic))
            except Failed:
                continue
        return found

    def close(self) -> None:
        """Ask nothing more; streams that wait are their connection's to end."""
        for task in tuple(self._tasks):
            task.cancel()

    # -- warn ------------------------------------------------------------------------------------------------------------

    def _observe(self, wanted: Topic | None, call: Call) -> None:
        topic = self._served(wanted)
        if bearer(call) is None:
            self._tell(topic, call, NO_TOKEN, "")
        elif self._allowed_already(topic, call):
            self.looks[ALLOWED] += 1
        elif len(self._tasks) < self.seats.most:
            self._spawn(self._observe_later(topic, call))
        else:
            self.looks[UNKNOWN] += 1

    def _served(self, topic: Topic | None) -> Topic | None:
        """What an id means to whoever may read everything, as all may here: what is judged is what was
        served.
        """
        if not isinstance(topic, Identified):
            return topic
        claims = self._catalog.claims(topic.flag_set_id)
        return Named(*claims[0].place) if claims else topic

    async def _observe_later(self, topic: Topic | None, call: Call) -> None:
        look, who = await self._look(topic, call)
        self._tell(topic, call, look, who)

    def _tell(self, topic: Topic | None, call: Call, look: str, who: str) -> None:
        self.looks[look] += 1
        if look in {NO_TOKEN, INVALID_TOKEN, FORBIDDEN} and isinstance(topic, Named):
            place = (topic.namespace, topic.name)
            self._witness.unwelcome(place, who or host_of(call.peer), look)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
