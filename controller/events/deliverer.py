"""Delivers waiting messages: one of a provider at a time, in order, until it arrives or is given up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.api import flagalert, flagprovider
from controller.api.addresses import server_of
from controller.api.meta import ObjectKey, about
from controller.api.status import FALSE, TRUE, Condition, Status
from controller.authoring.plan_words import FORGES
from controller.events import git_servers
from controller.events import git_servers as github_app
from controller.events.alert_reconciler import alert_status
from controller.events.flag_set_progress import (
    CHANGE_REQUEST,
    CHANGE_REQUESTS,
    COMMITS,
    comparison_of,
    comparison_text,
)
from controller.events.flux_events import post_of_flux
from controller.events.git_servers import (
    CHECKED_BY_REPOSITORY,
    MOST_PAGES,
    PAGE,
    CommentThread,
    Grant,
    read_comments,
)
from controller.events.notice import App, Notice, Post, ProviderTarget
from controller.events.senders import PostResult, Sender
from controller.events.service_types import is_known, is_refusal, post_of
from controller.runtime.helpers import TRUSTED, ForeignTasks, Task
from controller.runtime.limits import Pace
from controller.runtime.setbacks import Setback
from evaluator.host.backoff import Backoff
from evaluator.host.times import parse_time, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.api.flagprovider import Message
    from controller.events.outbox import Outbox
    from controller.events.provider_outbox import ProviderOutbox
    from controller.runtime.cache import Cache
    from controller.runtime.loop import StatusWriter


LONGEST: Final = 300.0
"""Seconds between tries, without a Retry-After."""
_BACKOFF: Final = Backoff(first=1.0, most=LONGEST)
_REST: Final = 8_000
"""Bytes for what a comment says beside a comparison."""
OLDEST: Final = timedelta(hours=24)
"""Age at which an undelivered message is given up."""


@dataclass(frozen=True, slots=True)
class Again:
    """Try again after some seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class Dead:
    """Give the message up."""

    why: str


def verdict(
    message: Message, answer: PostResult, failures: int, random: float, now: datetime, type_: str = ""
) -> Again | Dead | None:
    """Decide after `failures` tries in a row, this one included; None: delivered. `random`: from 0 to 1.
    `type_`: of the provider.
    """
    # Azure DevOps answers an invalid token with a sign-in page, and this status.
    if 200 <= answer.status < 300 and not (answer.status == 203 and type_.startswith("azuredevops")):
        return None
    # Flux's notification-controller has received the same within the last minutes.
    if answer.status == 429 and type_ == "flux":
        return None
    # A refused content will be refused again, and a missing commit rarely arrives later.
    if answer.status in {400, 413, 415, 422} or (answer.status == 404 and type_ in COMMITS):
        return Dead(answer.text)
    if answer.status and not message.alert:
        # The user who requested a test reads the answer; other messages must not wait a day behind it.
        return Dead(answer.text)
    moment = parse_time(message.time)
    if moment is None or now - moment > OLDEST:
        return Dead(f"not delivered for {OLDEST.total_seconds() / 3600:g} h, last: {answer.text}")
    return Again(max(answer.retry_after, _BACKOFF.delay(failures, random)))


_NOT_GRANTED: Final = 502
"""The status of a refused App token: a retry follows, since no message is at fault."""
_REFUSED: Final = 422
"""The status of a refusal, which is not retried."""


async def app_token(
    sender: Sender, target: ProviderTarget, app: App, known: Grant | None, now: datetime
) -> Grant | PostResult:
    """Return the known or a new token of the App, or an answer that reports why there is none."""
    if known is not None and now < known.until:
        return known
    answer = await _send(sender, target, await asyncio.to_thread(github_app.token_request, app, target, now))
    if not 200 <= answer.status < 300:
        status = _NOT_GRANTED if answer.status else 0
        return replace(answer, status=status, text=f"no token for the GitHub App: {answer.text}")
    try:
        return github_app.grant_of(answer.content, now)
    except (ValueError, RecursionError):
        return PostResult(_NOT_GRANTED, "no token for the GitHub App: the answer has none")


async def send_test_status(sender: Sender, message: Message, target: ProviderTarget) -> PostResult:
    """Send the status of a commit that does not exist; if it is refused as missing, check the repository."""
    answer = await _send(sender, target, post_of(message, target))
    # Statuses of these servers for a missing commit; Gitea's is 500.
    if answer.status not in {400, 404, 422, 500}:
        return answer
    repository = await _send(sender, target, git_servers.repository_request(target))
    return repository if repository.status == 200 else answer


async def upsert_comment(sender: Sender, message: Message, target: ProviderTarget) -> PostResult:
    """Edit the comment of the message's object, or add it. Returns the answer to the last request."""
    if CHANGE_REQUEST not in message.metadata:
        # A test has no pull request: it checks the address and the token.
        return await _send(sender, target, git_servers.repository_request(target))
    thread = CommentThread.of_notice(Notice(message, target))
    answer = await put_comment(sender, thread)
    return await _explain_missing(sender, message, target, answer) if answer.status == 404 else answer


async def put_comment(sender: Sender, thread: CommentThread) -> PostResult:
    """Add the comment, edit it if it differs, or remove it if it has no text. Returns the answer to the last
    request; that of status 404 may also be to an edit of what was removed meanwhile.
    """
    target = thread.target
    for page in range(1, MOST_PAGES + 1):
        answer = await _send(sender, target, thread.list_request(page))
        if not 200 <= answer.status < 300:
            return answer
        try:
            comments = read_comments(answer.content, target.spec.type)
        except (ValueError, RecursionError):
            return PostResult(0, "the list of comments cannot be read")
        for number, text in comments:
            if text.startswith(thread.marker):
                if not thread.text:
                    return await _send(sender, target, thread.delete_request(number))
                # Servers may cut what is blank at the end.
                same = text.strip() == thread.body.strip()
                return answer if same else await _send(sender, target, thread.edit_request(number))
        if thread.is_last(len(comments)):
            return await _send(sender, target, thread.create_request()) if thread.text else answer
    return PostResult(_REFUSED, f"the pull request has more than {PAGE * MOST_PAGES} comments")


async def _explain_missing(
    sender: Sender, message: Message, target: ProviderTarget, answer: PostResult
) -> PostResult:
    """Read the repository, to distinguish a missing pull request from a token without the right to read."""
    repository = await _send(sender, target, git_servers.repository_request(target))
    if not 200 <= repository.status < 300:
        return answer
    number = message.metadata[CHANGE_REQUEST]
    return replace(answer, status=_REFUSED, text=f"the repository has no pull request {number}")


async def _send(sender: Sender, target: ProviderTarget, post: Post) -> PostResult:
    return await sender.send(post, target.route)


log = logging.getLogger(__name__)

DELIVERED: Final = "Delivered"
"""Condition of a FlagProvider: whether its last message arrived; absent before the first message."""
SETTLE: Final = 5.0
"""Seconds of leading before objects are compared, so that the watches receive the last leader's writes."""
WRITE_LATER: Final = 1.0
"""Seconds until a delivery is written while more messages wait, so that one write covers several."""
GRACE: Final = 1.0
"""Seconds at the end of leading for unfinished sends, and again to write their outcomes."""


class Senders(NamedTuple):
    """One sender for each way to a server."""

    http: Sender
    mail: Sender
    operators: Sender
    """For addresses that come from the controller's operator."""

    def to(self, target: ProviderTarget) -> Sender:
        """Return the sender of a message to a provider."""
        if target.operators:
            return self.operators
        return self.mail if target.spec.type == "email" else self.http


@dataclass(slots=True)
class _Route:
    """A usable provider."""

    target: ProviderTarget
    pace: Pace = field(default_factory=Pace)
    failures: int = 0
    """Failed tries in a row."""
    grant: Grant | None = None
    """The last token of a GitHub App."""
    last: Condition | None = None
    sending: bool = False
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Deliverer:
    """Sends the waiting messages of all usable providers while this replica leads."""

    outbox: Outbox
    senders: Senders
    objects: Cache
    writer: StatusWriter
    now: Callable[[], datetime]
    clock: Callable[[], float]
    """Seconds of a monotonic clock."""
    random: Callable[[], float]
    """Returns a random number from 0 to 1."""
    count: Callable[[str, str], None]
    """Receives (type, result) of each try."""
    tasks: ForeignTasks = TRUSTED
    """Who compares the flags of tenants."""
    _routes: dict[ObjectKey, _Route] = field(default_factory=dict)
    _resting: bool = False

    def __post_init__(self) -> None:
        self.outbox.sendable = self.start

    def begin(self) -> None:
        """Prepare for leading, before `run` and the first Event."""
        self._resting = False
        self.outbox.begin()

    def use(self, key: ObjectKey, target: ProviderTarget) -> None:
        """Deliver the provider's waiting messages to `target` from now on."""
        route = self._routes.get(key)
        if route is None:
            route = self._routes[key] = _Route(target)
        elif route.target != target:
            # The new target may work: retry at once.
            self._stop(route)
            route.target, route.failures, route.grant = target, 0, None
        self.start(key)

    def stop(self, key: ObjectKey) -> None:
        """Stop delivering to a provider that is unusable or gone; its messages keep waiting."""
        route = self._routes.pop(key, None)
        if route is not None:
            self._stop(route)

    def last(self, key: ObjectKey) -> tuple[Condition, ...]:
        """Return the result of the provider's last try, if any."""
        route = self._routes.get(key)
        return () if route is None or route.last is None else (route.last,)

    def start(self, key: ObjectKey) -> None:
        """Start delivering the provider's waiting messages, unless a delivery is running."""
        route, box = self._routes.get(key), self.outbox.box(key)
        if route is None or box is None or (route.task is not None and not route.task.done()):
            return
        if next(box.sendable(self.now()), None) is not None:
            route.task = asyncio.create_task(self._deliver(key, route, box))

    async def run(self) -> None:
        """Deliver until cancelled; then finish running sends and write their outcomes."""
        try:
            await asyncio.sleep(SETTLE)
            self.outbox.settled = True
            for resource in self.objects.of_kind(flagprovider.KIND):
                self.outbox.wake(resource.key, 0.0)
            await asyncio.Event().wait()
        finally:
            await self._rest()
            self._routes.clear()
            self.outbox.end()

    async def _rest(self) -> None:
        self._resting = True
        for route in self._routes.values():
            if not route.sending:
                self._stop(route)
        tasks = [route.task for route in self._routes.values() if route.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)
        for route in self._routes.values():
            self._stop(route)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                boxes = self.outbox.boxes().items()
                await asyncio.gather(*(self._write(key, box.status()) for key, box in boxes))
                alerts = self.objects.of_kind(flagalert.KIND)
                await asyncio.gather(
                    *(self._write(alert.key, alert_status(alert, self.outbox)) for alert in alerts)
                )

    async def _write(self, key: ObjectKey, fields: Status) -> None:
        """Write the outcomes that are not written yet when leading ends."""
        resource = self.objects.get(key)
        if resource is None:
            return
        status = {**resource.status, **fields.fields()}
        status = {name: value for name, value in status.items() if value is not None}
        if status == resource.status:
            return
        try:
            await self.writer.write_status(resource, status)
        except Setback as setback:
            log.warning("what was delivered is not written: %s", setback.message, extra=about(key))

    async def _deliver(self, key: ObjectKey, route: _Route, box: ProviderOutbox) -> None:
        while (message := next(box.sendable(self.now()), None)) is not None and not self._is_quiet(key):
            await asyncio.sleep(route.pace.wait(self.clock()))
            route.sending = True
            try:
                pause = await self._try(key, route, box, message)
            except Exception:
                log.exception("an alert could not be sent", extra=about(key))
                box.drop(message.key, "it could not be sent; the controller's log has more")
                pause = 0.0
            finally:
                route.sending = False
            if not self._is_quiet(key):
                await asyncio.sleep(pause)

    def _is_quiet(self, key: ObjectKey) -> bool:
        """Whether to stop sending: leading ends, or the provider is suspended."""
        resource = self.objects.get(key)
        return self._resting or (resource is not None and resource.suspended)

    async def _try(self, key: ObjectKey, route: _Route, box: ProviderOutbox, message: Message) -> float:
        """Send once; return the seconds until the next try."""
        answer = await self._send_with_token(message, route)
        if is_refusal(route.target, answer.content):
            answer = replace(answer, status=502)
        elif is_known(route.target, message, answer.content):
            answer = replace(answer, status=200)
        now = self.now()
        type_ = route.target.spec.type
        result = verdict(message, answer, route.failures + 1, self.random(), now, type_)
        if isinstance(result, Again):
            route.failures += 1
            self.count(type_, "failed")
            log.warning("an alert is sent again: %s", answer.text, extra=about(key))
            box.record_failure(message.alert, "DeliveryFailed", answer.text, now)
            condition = Condition(DELIVERED, FALSE, "DeliveryFailed", answer.text)
            if route.last != condition:
                route.last = condition
                self.outbox.wake(key, 0.0)
            return result.delay
        if isinstance(result, Dead):
            self.count(type_, "dead")
            log.warning("an alert is not sent any more: %s", result.why, extra=about(key))
            box.record_failure(message.alert, "MessageRefused", result.why, now)
            box.drop(message.key, result.why)
            route.last = Condition(DELIVERED, FALSE, "MessageRefused", result.why)
        else:
            self.count(type_, "delivered")
            box.record_delivery(message.key, timestamp(now))
            route.last = Condition(DELIVERED, TRUE, "Succeeded", "the last message was delivered")
        route.failures = 0
        self.outbox.wake(key, WRITE_LATER if next(box.sendable(now), None) is not None else 0.0)
        return 0.0

    async def _send_with_token(self, message: Message, route: _Route) -> PostResult:
        target = route.target
        if target.spec.type == "flux":
            return await self.senders.to(target).send(
                post_of_flux(self.objects, message, target), target.route
            )
        if message.namespace:
            # The message names the namespace of the object.
            target = replace(target, namespace=message.namespace)
        if target.app is None:
            return await self._send(message, target)
        grant = await app_token(self.senders.http, target, target.app, route.grant, self.now())
        if isinstance(grant, PostResult):
            return grant
        answer = await self._send(message, replace(target, token=grant.token))
        # A refused token was revoked: the next try requests another.
        route.grant = None if answer.status == 401 else grant
        return answer

    async def _send(self, message: Message, target: ProviderTarget) -> PostResult:
        if target.spec.type in CHECKED_BY_REPOSITORY and not message.alert:
            return await send_test_status(self.senders.http, message, target)
        if target.spec.type not in CHANGE_REQUESTS:
            return await self.senders.to(target).send(post_of(message, target), target.route)
        message = await self._with_comparison(message, target)
        return await upsert_comment(self.senders.http, message, target)

    async def _with_comparison(self, message: Message, target: ProviderTarget) -> Message:
        """Add what a compared FlagSet does to users, without their shares where these take too much."""
        found = await asyncio.to_thread(comparison_of, self.objects, message, target.namespace)
        if found is None:
            return message
        before, after = found.sides
        if before is None or after is None:
            return found.add_to(message, "unknown: one of the two is incomplete")
        task = Task(
            target.namespace, f"the comparison with FlagSet {found.base}", "make several FlagSets of it"
        )
        limit, now = FORGES[server_of(target.spec.type)] - _REST, int(self.now().timestamp())
        try:
            text = await self.tasks.run(task, comparison_text, before, after, limit, now, large=True)
        except Setback as setback:
            log.warning("%s", setback.message)
            plain = partial(comparison_text, before, after, limit, now, measure=False)
            text = await asyncio.to_thread(plain)
        return found.add_to(message, text)

    @staticmethod
    def _stop(route: _Route) -> None:
        if route.task is not None:
            route.task.cancel()
            route.task = None
