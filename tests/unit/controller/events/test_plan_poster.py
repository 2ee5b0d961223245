"""Plans of open pull requests: one comment for each, edited where it differs; none for untrusted ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest
from aiohttp import web

from controller.api.flagprovider import LISTING, FlagProviderSpec
from controller.events.notice import ProviderTarget
from controller.events.plan_poster import OpenPullRequests, PlanPoster
from controller.events.pull_requests import read_pull_requests
from controller.runtime.cache import Cache
from controller.runtime.setbacks import Stalled
from tests.unit.controller.events.test_change_request_comment import BITBUCKET, TOKEN, Service
from tests.web_server import web_server
from tests.worlds.events import CHAT, NOW, http_sender
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from controller.api.status import Condition
    from controller.events.pull_requests import PullRequest
    from controller.events.senders import HttpSender

GITHUB: Final = "githubpullrequestcomment"
AZURE: Final = "azuredevopspullrequestcomment"
GITLAB: Final = "gitlabmergerequestcomment"
COMMIT: Final = "a" * 40
LISTS: Final = {
    GITHUB: "/pulls",
    "giteapullrequestcomment": "/pulls",
    GITLAB: "/merge_requests",
    BITBUCKET: "/pullrequests",
    AZURE: "/pullrequests",
}


def entry(
    type_: str, number: int = 7, commit: str = COMMIT, *, fork: bool = False, labels: tuple[str, ...] = ()
) -> dict[str, Any]:
    """An open pull request as the service lists it, with the fields that we read."""
    if type_ == GITLAB:
        projects = {"source_project_id": 2 if fork else 1, "target_project_id": 1}
        return {"iid": number, "id": 9_000 + number, "sha": commit, "labels": [*labels], **projects}
    if type_ == BITBUCKET:
        source: dict[str, Any] = {"repository": {"full_name": "eve/flags" if fork else "shop/flags"}}
        branch = {"branch": {"name": "new-cart"}, "commit": {"hash": commit[:12]}}
        return {
            "id": number,
            "source": source | branch,
            "destination": {"repository": {"full_name": "shop/flags"}},
        }
    if type_ == AZURE:
        return {
            "pullRequestId": number,
            "status": "active",
            "mergeStatus": "succeeded",
            "sourceRefName": "refs/heads/new-cart",
            "targetRefName": "refs/heads/main",
            "lastMergeSourceCommit": {"commitId": commit},
            "lastMergeCommit": {"commitId": "d" * 40},
            "labels": [{"id": "1", "name": name, "active": True} for name in labels],
            **({"forkSource": {"name": "refs/heads/new-cart", "repository": {"id": "2"}}} if fork else {}),
        }
    return {
        "number": number,
        "head": {"sha": commit, "repo": {"id": 2 if fork else 1}},
        "base": {"sha": "b" * 40, "repo": {"id": 1}},
        "labels": [{"name": name} for name in labels],
    }


class Repository(Service):
    """A service that lists pull requests, too, and answers 304 where nothing changed."""

    def __init__(self, type_: str) -> None:
        super().__init__(type_)
        self.pulls = [entry(type_)]
        self.status = 200
        self.lists: list[int] = []
        """The status of each answer to a list."""

    async def answer(self, request: web.Request) -> web.Response:
        path = request.raw_path.partition("?")[0].removeprefix(self.repository)
        if request.method == "GET" and path == LISTS[self.type]:
            return self._list(request)
        if request.method == "DELETE" and path.startswith(self.one):
            self.methods.append("DELETE")
            del self.comments[int(path.removeprefix(self.one).partition("/")[0])]
            return web.Response(status=204)
        return await super().answer(request)

    def _list(self, request: web.Request) -> web.Response:
        name, _, value = self.header.partition(": ")
        if request.headers.get(name) != value:
            return web.json_response({"message": "Bad credentials"}, status=401)
        etag = f'"{hash(str(self.pulls))}"'
        status = 304 if request.headers.get("If-None-Match") == etag and self.status == 200 else self.status
        self.lists.append(status)
        if status != 200:
            return web.Response(status=status, headers={"Retry-After": "0"})
        size = int(
            request.query.get("per_page")
            or request.query.get("limit")
            or request.query.get("$top")
            or request.query["pagelen"]
        )
        first = int(request.query.get("$skip") or size * (int(request.query.get("page") or 1) - 1))
        found: Any = self.pulls[first : first + size]
        return web.json_response(
            {BITBUCKET: {"values": found}, AZURE: {"value": found}}.get(self.type, found),
            headers={"ETag": etag},
        )


@dataclass
class Plans:
    """What a plan says, by FlagSet; an exception is raised."""

    texts: dict[str, str | Stalled] = field(default_factory=lambda: {"production": "1 flag differs"})
    asked: list[tuple[int, str]] = field(default_factory=list)
    delivered: str = "1"

    def version(self, namespace: str, flag_set: str) -> str:
        assert namespace == "shop"
        return f"{flag_set} {self.delivered}"

    async def plan(self, namespace: str, flag_set: str, pull: PullRequest, address: str, type_: str) -> str:
        del namespace, address, type_
        self.asked.append((pull.number, flag_set))
        text = self.texts[flag_set]
        if isinstance(text, Stalled):
            raise text
        return text


class Desk:
    """The pull requests of one provider."""

    def __init__(self, found: Repository, sender: HttpSender, plans: dict[str, Any]) -> None:
        self.plans, self.found, self.sender = Plans(), found, sender
        given = {"flagSets": list(self.plans.texts), **plans}
        spec = FlagProviderSpec.model_validate({"type": found.type, "plans": given})
        self.target = ProviderTarget(spec, found.address, TOKEN, "shop")
        self.lead()

    def lead(self) -> None:
        """Begin with nothing known, as another leader does."""
        assert self.target.spec.plans is not None
        clock = asyncio.get_running_loop().time
        self.pulls = OpenPullRequests(
            self.sender, self.plans, self.target, self.target.spec.plans, "uid", lambda: NOW, clock
        )

    async def look(self) -> Condition:
        """The condition after another list."""
        return (await self.pulls.look()).condition


@contextlib.asynccontextmanager
async def desk(type_: str = GITHUB, **plans: Any) -> AsyncIterator[Desk]:
    found = Repository(type_)
    async with web_server(web.route("*", "/{path:.*}", found.answer)) as port, http_sender() as sender:
        found.address = f"http://127.0.0.1:{port}/{found.path}"
        yield Desk(found, sender, plans)


@pytest.mark.parametrize("type_", LISTING)
async def test_a_comment_is_added_edited_where_it_differs_and_removed_where_nothing_changes(
    type_: str,
) -> None:
    async with desk(type_) as made:
        assert (await made.look()).message == "open pull requests have comments"
        (text,) = made.found.comments.values()
        assert text.endswith("1 flag differs")
        # Nothing changed: one list, and nothing else.
        made.found.methods.clear()
        await made.look()
        assert made.found.lists[-1] == 304
        assert made.found.methods == []
        made.found.pulls = [entry(type_, commit="c" * 40)]
        made.plans.texts["production"] = "2 flags differ"
        await made.look()
        (text,) = made.found.comments.values()
        assert text.endswith("2 flags differ")
        made.plans.delivered, made.plans.texts["production"] = "2", ""
        await made.look()
        assert made.found.comments == {}


async def test_another_leader_finds_the_comment_and_edits_nothing() -> None:
    async with desk() as made:
        await made.look()
        made.lead()
        made.found.methods.clear()
        await made.look()
        assert made.found.methods == ["GET"]
        assert len(made.found.comments) == 1


@pytest.mark.parametrize("type_", [GITHUB, GITLAB, AZURE, "giteapullrequestcomment"])
async def test_a_fork_has_a_comment_only_with_the_label(type_: str) -> None:
    async with desk(type_, forkLabel="plan") as made:
        made.found.pulls = [entry(type_, fork=True, labels=("other",))]
        await made.look()
        assert made.plans.asked == []
        made.found.pulls = [entry(type_, fork=True, labels=("other", "plan"))]
        await made.look()
        assert made.plans.asked == [(7, "production")]


@pytest.mark.parametrize("type_", LISTING)
async def test_a_fork_has_no_comment_where_no_label_is_named(type_: str) -> None:
    async with desk(type_) as made:
        made.found.pulls = [entry(type_, fork=True, labels=("plan",))]
        message = (await made.look()).message
        assert made.plans.asked == []
        assert message.startswith("open pull requests have comments, but 1 from forks")


def test_a_pull_request_of_a_repository_that_was_deleted_is_of_a_fork() -> None:
    found = entry(GITHUB)
    found["head"]["repo"] = None
    (pull,) = read_pull_requests(json.dumps([found]).encode(), GITHUB)
    assert pull.is_fork


@pytest.mark.parametrize("status", [404, 403, 429, 500])
async def test_a_list_that_cannot_be_read_changes_no_comment(status: int) -> None:
    async with desk() as made:
        await made.look()
        made.found.status = status
        made.found.pulls = []
        condition = await made.look()
        assert condition.message == f"the open pull requests cannot be listed: status {status}"
        assert len(made.found.comments) == 1
        made.found.status = 200
        assert (await made.look()).status == "True"
        # Of closed ones, too: what was said stays.
        assert len(made.found.comments) == 1


async def test_only_as_many_as_the_limit_says_are_planned_and_pages_are_read_until_then() -> None:
    async with desk(limit=12) as made:
        made.found.pulls = [entry(GITHUB, number) for number in range(40, 0, -1)]
        await made.look()
        # The service has comments of pull request 7 alone, and says of others that they are not there.
        assert [number for number, _ in made.plans.asked] == [*range(40, 28, -1)]
        assert made.found.lists == [200, 200]


async def test_one_that_cannot_be_planned_is_said_and_hides_no_other() -> None:
    async with desk(flagSets=["staging", "production"]) as made:
        made.plans.texts["staging"] = Stalled("InvalidSource", "it has none")
        condition = await made.look()
        assert (condition.status, condition.reason) == ("False", "InvalidSource")
        assert condition.message == "pull request 7, FlagSet staging: it has none"
        assert len(made.found.comments) == 1


async def test_a_refused_token_is_not_shown() -> None:
    async with desk() as made:
        made.found.header = "Authorization: Bearer another"
        condition = await made.look()
    assert condition.message == "the open pull requests cannot be listed: status 401: Bad credentials"


@contextlib.asynccontextmanager
async def poster(made: Desk, **spec: Any) -> AsyncIterator[tuple[PlanPoster, asyncio.Event]]:
    """A poster that leads and uses the provider `chat`, and whether it asked for a write of its status."""
    objects, woken = Cache(), asyncio.Event()
    objects.learn(thing("FlagProvider", "chat", {"type": GITHUB, **spec}))
    clock = asyncio.get_running_loop().time
    posting = PlanPoster(
        made.sender, made.plans, objects, lambda: NOW, clock, lambda: 0.0, lambda _: woken.set(), 0.0
    )
    running = asyncio.create_task(posting.run())
    await asyncio.sleep(0)
    posting.use(CHAT, "uid", made.target)
    try:
        yield posting, woken
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_what_came_of_it_is_written_to_the_status() -> None:
    async with desk() as made, poster(made) as (posting, woken), asyncio.timeout(20):
        await woken.wait()
        (condition,) = posting.last(CHAT)
        assert (condition.type, condition.status) == ("Planned", "True")
        posting.stop(CHAT)
        assert posting.last(CHAT) == ()


@pytest.mark.timeout(30)
async def test_a_webhook_of_the_repository_has_the_list_read_at_once() -> None:
    async with desk() as made, poster(made) as (posting, woken):
        await woken.wait()
        posting.ask("other", {"127.0.0.1/shop/flags"})
        posting.ask("shop", {"127.0.0.1/shop/others"})
        await asyncio.sleep(0.1)
        assert len(made.found.lists) == 1
        posting.ask("shop", {"127.0.0.1/shop/flags"})
        while len(made.found.lists) == 1:  # noqa: ASYNC110 - the service has no event
            await asyncio.sleep(0.01)


async def test_a_suspended_provider_asks_nothing() -> None:
    async with desk() as made, poster(made, suspend=True):
        await asyncio.sleep(0.1)
        assert made.found.lists == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda found: found.update(number="7"),
        lambda found: found["head"].update(sha="../../x"),
        lambda found: found["head"].update(sha=None),
        lambda found: found.update(head=7),
    ],
)
def test_an_entry_that_cannot_be_read_is_left_out(spoil: Callable[[dict[str, Any]], None]) -> None:
    bad = entry(GITHUB)
    spoil(bad)
    answer = json.dumps([bad, 7, entry(GITHUB, 8)]).encode()
    assert [pull.number for pull in read_pull_requests(answer, GITHUB)] == [8]


@pytest.mark.parametrize("branch", ["a b", "{0}", "", "-x", None])
def test_a_branch_that_is_no_plain_name_is_left_out(branch: str | None) -> None:
    found = entry(BITBUCKET)
    found["source"]["branch"] = {"name": branch}
    assert read_pull_requests(json.dumps({"values": [found]}).encode(), BITBUCKET) == []


def test_of_a_fork_on_azure_devops_what_a_merge_makes_is_read() -> None:
    found = entry(AZURE, fork=True)
    (pull,) = read_pull_requests(json.dumps({"value": [found]}).encode(), AZURE)
    assert (pull.reference, pull.commit) == ("refs/pull/7/merge", "d" * 40)
    found["mergeStatus"] = "conflicts"
    assert read_pull_requests(json.dumps({"value": [found]}).encode(), AZURE) == []
    (pull,) = read_pull_requests(json.dumps({"value": [entry(AZURE)]}).encode(), AZURE)
    assert (pull.reference, pull.commit) == ("refs/heads/new-cart", COMMIT)
