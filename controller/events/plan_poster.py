"""Keeps a comment on each open pull request that says what it does to users, while this replica leads.

One list of the repository's pull requests is asked for at each interval, and only for what differs. A list
that cannot be read changes no comment. What was posted is not stored: a comment is found by its marker, and
edited only where it would say something else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from controller.api.meta import about
from controller.api.status import FALSE, TRUE, Condition
from controller.events.deliverer import app_token, put_comment
from controller.events.git_servers import CommentThread
from controller.events.pull_requests import PAGE, list_request, read_pull_requests
from controller.events.pushes import normalise_url
from controller.events.senders import PostResult
from controller.runtime.limits import Pace
from controller.runtime.setbacks import Setback

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from datetime import datetime

    from controller.api.flagprovider import PullRequestPlans
    from controller.api.meta import ObjectKey
    from controller.events.git_servers import Grant
    from controller.events.notice import ProviderTarget
    from controller.events.pull_requests import PullRequest
    from controller.events.senders import Sender
    from controller.runtime.cache import Cache

log = logging.getLogger(__name__)

PLANNED: Final = "Planned"
"""Condition of a FlagProvider: whether open pull requests have comments; absent without `spec.plans`."""
_JITTER: Final = 0.1
"""Greatest random share of the interval that is waited longer."""
_LONGEST: Final = 3_600.0
"""Seconds between two tries at most."""
_SHORTEST: Final = 5.0
"""Seconds between two lists, however often they are asked for."""
_RETRIED: Final = frozenset({"DeliveryFailed", "InternalError"})
"""Reasons after which the pause grows."""
_NOT_MODIFIED: Final = 304
_OF_ONE: Final = frozenset({404, 410, 422})
"""Statuses that say nothing of other pull requests."""
_BITBUCKET: Final = "bitbucketpullrequestcomment"
_LISTING: Final = "the open pull requests cannot be listed"


class Planner(Protocol):
    """Says what a pull request does to users of a FlagSet."""

    def version(self, namespace: str, flag_set: str) -> str:
        """What a plan of the FlagSet is made of, beside the pull request."""

    async def plan(self, namespace: str, flag_set: str, pull: PullRequest, address: str, type_: str) -> str:
        """The comment, without a marker, of a pull request of the repository at `address`; empty where
        nothing changes. Raises Setback.
        """


class _Failure(Exception):
    """A request that did not succeed."""

    def __init__(self, answer: PostResult, doing: str) -> None:
        super().__init__(f"{doing}: {answer.text}")
        self.retry_after = answer.retry_after


class Look(NamedTuple):
    """What came of a list."""

    condition: Condition
    pause: float = 0.0
    """Seconds for which the server asks to wait."""


@dataclass(slots=True)
class OpenPullRequests:
    """Those of one provider's repository, with a comment of ours on each."""

    sender: Sender
    planner: Planner
    target: ProviderTarget
    plans: PullRequestPlans
    uid: str
    """Of the provider."""
    now: Callable[[], datetime]
    clock: Callable[[], float]
    """Seconds of a monotonic clock."""
    _pages: dict[int, tuple[str, list[PullRequest]]] = field(default_factory=dict)
    """The last answer to each page of the list, and its ETag."""
    _posted: dict[tuple[int, str], str] = field(default_factory=dict)
    """What the comment of a pull request and a FlagSet was made of last."""
    _grant: Grant | None = None
    _pace: Pace = field(default_factory=Pace)

    async def look(self) -> Look:
        """List them, and post what differs."""
        try:
            return Look(await self._look())
        except _Failure as failure:
            return Look(Condition(PLANNED, FALSE, "DeliveryFailed", str(failure)), failure.retry_after)

    async def _look(self) -> Condition:
        """Raises _Failure."""
        target = await self._with_token()
        listed = await self._list(target)
        admitted = [*self._admitted(listed)]
        pulls = admitted[: self.plans.limit]
        wanted = {(pull.number, name): pull for pull in pulls for name in self.plans.flag_sets}
        self._posted = {pair: made for pair, made in self._posted.items() if pair in wanted}
        failed = [
            condition
            for (_, name), pull in wanted.items()
            if (condition := await self._keep_comment(target, name, pull)) is not None
        ]
        left_out = self._left_out(len(listed) - len(admitted))
        done = Condition(PLANNED, TRUE, "Succeeded", f"open pull requests have comments{left_out}")
        return failed[0] if failed else done

    async def _keep_comment(self, target: ProviderTarget, name: str, pull: PullRequest) -> Condition | None:
        """Make the comment say what the pull request does to users of a FlagSet; return why it cannot.
        Raises _Failure for what others would meet, too.
        """
        made_of = f"{pull.commit} {self.planner.version(target.namespace, name)}"
        if self._posted.get((pull.number, name)) == made_of:
            return None
        where = f"pull request {pull.number}, FlagSet {name}"
        try:
            text = await self.planner.plan(target.namespace, name, pull, target.address, target.spec.type)
        except Setback as setback:
            return Condition(PLANNED, FALSE, setback.reason, f"{where}: {setback.message}")
        await asyncio.sleep(self._pace.wait(self.clock()))
        thread = CommentThread(target, str(pull.number), f"{self.uid} plan {name}", text)
        answer = await put_comment(self.sender, thread)
        if answer.status in _OF_ONE:
            return Condition(PLANNED, FALSE, "MessageRefused", f"{where}: {answer.text}")
        if not 200 <= answer.status < 300:
            raise _Failure(answer, where)
        self._posted[pull.number, name] = made_of
        return None

    async def _list(self, target: ProviderTarget) -> list[PullRequest]:
        """The last that changed first. Raises _Failure."""
        found: list[PullRequest] = []
        for page in range(1, -(-self.plans.limit // PAGE) + 1):
            etag, known = self._pages.get(page, ("", []))
            answer = await self.sender.send(list_request(target, page, etag), target.route)
            if answer.status == 401:
                # The token was revoked: another is asked for the next time.
                self._grant = None
            if answer.status != _NOT_MODIFIED or not etag:
                if answer.status != 200:
                    raise _Failure(answer, _LISTING)
                try:
                    known = read_pull_requests(answer.content, target.spec.type)
                except (ValueError, RecursionError):
                    raise _Failure(PostResult(0, "the answer cannot be read"), _LISTING) from None
                self._pages[page] = answer.etag, known
            found += known
            if len(known) < PAGE:
                break
        return found

    async def _with_token(self) -> ProviderTarget:
        """Raises _Failure."""
        target = self.target
        if target.app is None:
            return target
        grant = await app_token(self.sender, target, target.app, self._grant, self.now())
        if isinstance(grant, PostResult):
            raise _Failure(grant, _LISTING)
        if grant != self._grant:
            # ETags belong to a token.
            self._pages.clear()
            self._grant = grant
        return replace(target, token=grant.token)

    def _left_out(self, forks: int) -> str:
        if not forks:
            return ""
        bitbucket = self.target.spec.type == _BITBUCKET
        why = (
            "Bitbucket has no labels" if bitbucket else "they lack the label that spec.plans.forkLabel names"
        )
        return f", but {forks} from forks: {why}"

    def _admitted(self, pulls: list[PullRequest]) -> Iterator[PullRequest]:
        """Yield those whose plans may be shown: a fork's content is of anybody."""
        for pull in pulls:
            if not pull.is_fork or self.plans.fork_label in pull.labels:
                yield pull


@dataclass(slots=True)
class _Route:
    """A provider that keeps comments."""

    pulls: OpenPullRequests
    task: asyncio.Task[None] | None = None
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    last: Condition | None = None


@dataclass(slots=True)
class PlanPoster:
    """Belongs to one event loop."""

    sender: Sender
    planner: Planner
    objects: Cache
    now: Callable[[], datetime]
    clock: Callable[[], float]
    """Seconds of a monotonic clock."""
    random: Callable[[], float]
    """Returns a random number from 0 to 1."""
    wake: Callable[[ObjectKey], None]
    """Has a provider's status written."""
    shortest: float = _SHORTEST
    _routes: dict[ObjectKey, _Route] = field(default_factory=dict)

    def use(self, key: ObjectKey, uid: str, target: ProviderTarget) -> None:
        """Keep the comments that a usable provider asks for, from now on."""
        route = self._routes.get(key)
        if route is not None and (route.pulls.uid, route.pulls.target) == (uid, target):
            return
        self.stop(key)
        if (plans := target.spec.plans) is not None:
            pulls = OpenPullRequests(self.sender, self.planner, target, plans, uid, self.now, self.clock)
            route = self._routes[key] = _Route(pulls)
            route.task = asyncio.create_task(self._follow(key, route))

    def stop(self, key: ObjectKey) -> None:
        """Keep no comments any more; those that were made stay."""
        route = self._routes.pop(key, None)
        if route is not None and route.task is not None:
            route.task.cancel()

    def ask(self, namespace: str, repositories: Collection[str]) -> None:
        """List the pull requests of these repositories at once, for the providers of a namespace."""
        for key, route in self._routes.items():
            if key.namespace == namespace and normalise_url(route.pulls.target.address) in repositories:
                route.asked.set()

    def last(self, key: ObjectKey) -> tuple[Condition, ...]:
        """Return how the last list went, if there was one."""
        route = self._routes.get(key)
        return () if route is None or route.last is None else (route.last,)

    async def run(self) -> None:
        """Until cancelled; what is being posted ends with it."""
        try:
            await asyncio.Event().wait()
        finally:
            tasks = [route.task for route in self._routes.values() if route.task is not None]
            for key in tuple(self._routes):
                self.stop(key)
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, key: ObjectKey, route: _Route) -> None:
        failures, interval = 0, route.pulls.plans.interval
        while True:
            route.asked.clear()
            look = await self._look(key, route)
            if look is not None and look.condition != route.last:
                route.last = look.condition
                self.wake(key)
            failed = look is not None and look.condition.reason in _RETRIED
            failures = failures + 1 if failed else 0
            seconds = min(interval * 2 ** min(failures, 10), max(interval, _LONGEST))
            await asyncio.sleep(self.shortest if look is None else max(self.shortest, look.pause))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds * (1.0 + _JITTER * self.random())):
                    await route.asked.wait()

    async def _look(self, key: ObjectKey, route: _Route) -> Look | None:
        resource = self.objects.get(key)
        if resource is None or resource.suspended:
            return None
        try:
            return await route.pulls.look()
        except Exception:
            log.exception("plans could not be posted", extra=about(key))
            return Look(Condition(PLANNED, FALSE, "InternalError", "the controller's log has the error"))
