"""Comments on pull requests: one for each flag set, edited, never repeated, with what evaluates otherwise."""

from __future__ import annotations

import asyncio
import contextlib
from base64 import b64encode
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs
import pytest
from aiohttp import web

from controller.api.flagprovider import FlagProviderSpec, FlagProviderStatus
from controller.api.meta import ObjectKey, Resource
from controller.events.deliverer import Again, Dead, Deliverer, Senders, upsert_comment, verdict
from controller.events.flag_set_progress import CHANGE_REQUEST, CHANGE_REQUESTS, change_request_number
from controller.events.git_servers import CommentThread
from controller.events.notice import Notice, ProviderTarget
from controller.runtime.helpers import TRUSTED, ForeignTasks, Task
from controller.runtime.setbacks import Stalled
from tests.unit.controller.events.schemas import EDITS, SCHEMAS
from tests.web_server import web_server
from tests.worlds.events import CHAT, NOW, Desk, alert, http_sender, message, status
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from controller.api.flagprovider import Message
    from controller.events.senders import PostResult

TOKEN: Final = "a-token"  # noqa: S105
AZURE: Final = "azuredevopspullrequestcomment"
BITBUCKET: Final = "bitbucketpullrequestcomment"
BEARER: Final = f"Authorization: Bearer {TOKEN}"
SERVERS: Final[dict[str, tuple[str, str, str, str, str, str]]] = {
    "githubpullrequestcomment": (
        "shop/flags", "/api/v3/repos/shop/flags", "/issues/7/comments", "/issues/comments/", "PATCH", BEARER,
    ),
    "giteapullrequestcomment": (
        "shop/flags.git", "/api/v1/repos/shop/flags", "/issues/7/comments", "/issues/comments/", "PATCH",
        "Authorization: token a-token",
    ),
    "gitlabmergerequestcomment": (
        "shop/teams/flags", "/api/v4/projects/shop%2Fteams%2Fflags", "/merge_requests/7/notes",
        "/merge_requests/7/notes/", "PUT", "PRIVATE-TOKEN: a-token",
    ),
    BITBUCKET: (
        "shop/flags", "/2.0/repositories/shop/flags", "/pullrequests/7/comments",
        "/pullrequests/7/comments/", "PUT", BEARER,
    ),
    AZURE: (
        "org/the%20project/_git/flags", "/org/the%20project/_apis/git/repositories/flags",
        "/pullRequests/7/threads", "/pullRequests/7/threads/", "PATCH",
        f"Authorization: Basic {b64encode(b':a-token').decode()}",
    ),
}  # fmt: skip
"""By type: a repository's path, and what the service documents: the repository's API, the comments of a pull
request and one of them below it, the method that edits, and the header that authenticates.
"""


class Service:
    """A Git server with one pull request, number 7, which takes what the service documents and no more."""

    def __init__(self, type_: str) -> None:
        self.type = type_
        self.path, self.repository, self.list, self.one, self.edit, self.header = SERVERS[type_]
        self.comments: dict[int, str] = {}
        self.deleted: set[int] = set()
        self.methods: list[str] = []
        self.address = ""

    async def answer(self, request: web.Request) -> web.Response:
        name, _, value = self.header.partition(": ")
        path = request.raw_path.partition("?")[0]
        if self.type == AZURE and request.query.get("api-version") != "7.1":
            path = "/of another version"
        if request.headers.get(name) != value:
            return web.json_response({"message": "Bad credentials"}, status=401)
        self.methods.append(request.method)
        asked = (request.method, path.removeprefix(self.repository))
        if asked == ("GET", ""):
            return web.json_response({"id": 1})
        if asked == ("GET", self.list):
            return web.json_response(self._page(request.query))
        number = path.removeprefix(self.repository + self.one)
        if self.type == AZURE and number.endswith("/comments/1"):
            number = number.removesuffix("/comments/1")
        elif self.type == AZURE:
            number = "none"
        if asked != ("POST", self.list) and (
            request.method != self.edit or number not in map(str, self.comments.keys() - self.deleted)
        ):
            return web.json_response({"message": "Not Found"}, status=404)
        body = await request.json()
        edits = request.method == self.edit
        schema = EDITS.get(self.type, SCHEMAS[self.type]) if edits else SCHEMAS[self.type]
        if not jsonschema_rs.is_valid(schema, body):
            return web.json_response({"message": "Validation Failed"}, status=422)
        found = int(number) if edits else 100 + len(self.comments)
        given = body["comments"][0] if "comments" in body else body
        text = given.get("body") or given["content"]
        self.comments[found] = text["raw"] if self.type == BITBUCKET else text
        return web.json_response({"id": found}, status=200 if edits or self.type == AZURE else 201)

    def _one(self, number: int, text: str) -> dict[str, Any]:
        if self.type == AZURE:
            first = {"id": 1, "content": text, "commentType": "text", "isDeleted": number in self.deleted}
            return {"id": number, "comments": [first, {"id": 2, "content": "an answer"}], "isDeleted": False}
        if self.type == BITBUCKET:
            return {"id": number, "content": {"raw": text, "html": ""}, "deleted": number in self.deleted}
        return {"id": number, "body": text, "user": {}}

    def _page(self, query: Mapping[str, str]) -> Any:
        found = [self._one(number, text) for number, text in self.comments.items()]
        if self.type == AZURE:
            return {"value": found, "count": len(found)}
        if self.type == BITBUCKET:
            size, page = int(query.get("pagelen", 10)), int(query.get("page", 1))
            return {"values": found[size * (page - 1) : size * page], "pagelen": size, "page": page}
        if self.type == "giteapullrequestcomment":
            return found
        if self.type == "gitlabmergerequestcomment" and query.get("sort") != "asc":
            found.reverse()
        size, page = int(query.get("per_page", 20)), int(query.get("page", 1))
        return found[size * (page - 1) : size * page]


@contextlib.asynccontextmanager
async def service(type_: str) -> AsyncIterator[Service]:
    found = Service(type_)
    async with web_server(web.route("*", "/{path:.*}", found.answer)) as port:
        found.address = f"http://127.0.0.1:{port}/{found.path}"
        yield found


def target(found: Service, token: str = TOKEN) -> ProviderTarget:
    spec = FlagProviderSpec(type=found.type)  # type: ignore[arg-type]
    return ProviderTarget(spec, found.address, token, "shop", "controller-0")


async def send(found: Service, said: Message, token: str = TOKEN) -> PostResult:
    async with http_sender() as sender:
        return await upsert_comment(sender, said, target(found, token))


def message_of(words: str = "so it is", number: str = "7", **more: Any) -> Message:
    facts = {"flagstaff.dev/revision": "refs/pull/7/head@sha1:" + "1" * 40, CHANGE_REQUEST: number}
    return message(message=words, metadata=facts, **more)


@pytest.mark.parametrize("type_", sorted(CHANGE_REQUESTS))
async def test_a_comment_is_added_once_and_edited_from_then_on(type_: str) -> None:
    async with service(type_) as found:
        # Somebody quotes ours, and there are more comments than one page has.
        begins = CommentThread.of_notice(Notice(message_of(), target(found))).marker
        found.comments = dict.fromkeys(range(1, 41), f"> {begins}")
        added = 200 if type_ == AZURE else 201
        assert (await send(found, message_of("first"))).status == added
        assert (await send(found, message_of("second"))).status == 200
        assert (await send(found, message_of("of another", uid="u2"))).status == added
        assert (await send(found, message_of(), "another")).status == 401
    ours = [text for text in found.comments.values() if not text.startswith(">")]
    assert len(ours) == 2
    assert ours[0].startswith(begins)
    assert "second" in ours[0]
    assert "first" not in ours[0]


@pytest.mark.parametrize("type_", sorted(CHANGE_REQUESTS))
async def test_what_is_no_pull_request_is_given_up_and_what_may_not_be_seen_is_not(type_: str) -> None:
    async with service(type_) as found:
        nowhere = await send(found, message_of(number="8"))
        test = await send(found, message(reason="TestAlert"))
        found.repository = "/elsewhere"
        hidden = await send(found, message_of())
    assert nowhere.text == "the repository has no pull request 8"
    assert isinstance(verdict(message_of(), nowhere, 1, 0.0, NOW), Dead)
    assert test.status == 200
    assert isinstance(verdict(message_of(), hidden, 1, 0.0, NOW), Again)
    assert found.comments == {}


@pytest.mark.parametrize("type_", [AZURE, BITBUCKET])
async def test_a_comment_that_somebody_deleted_is_added_again(type_: str) -> None:
    async with service(type_) as found:
        await send(found, message_of("first"))
        found.deleted = set(found.comments)
        assert 200 <= (await send(found, message_of("second"))).status < 300
    assert len(found.comments) == 2


async def test_a_list_that_cannot_be_read_adds_nothing() -> None:
    async with service("githubpullrequestcomment") as found:
        found.comments = dict.fromkeys(range(20), "x" * 65_000)
        assert (await send(found, message_of())).text == "127.0.0.1: the answer has more than 1048576 bytes"
        found.comments = dict.fromkeys(range(1_000), "x")
        assert isinstance(verdict(message_of(), await send(found, message_of()), 1, 0.0, NOW), Dead)
    assert "POST" not in found.methods


async def test_what_a_repository_says_stays_in_its_block() -> None:
    async with service("githubpullrequestcomment") as found:
        await send(found, message_of("``` @team\n# big"))
    (text,) = found.comments.values()
    assert text.count("```") == 2


@pytest.mark.parametrize(
    ("annotations", "revision", "number"),
    [
        ({CHANGE_REQUEST: "12"}, "main@sha1:1", "12"),
        ({CHANGE_REQUEST: "12"}, "refs/pull/7/head@sha1:1", "12"),
        ({CHANGE_REQUEST: "../7"}, "refs/pull/7/head@sha1:1", ""),
        ({}, "refs/pull/7/head@sha1:1", "7"),
        ({}, "refs/pull/7/merge@sha1:1", "7"),
        ({}, "refs/merge-requests/7/head@sha1:1", "7"),
        ({}, "main@sha1:1", ""),
    ],
)
def test_the_pull_request_is_known_by_annotation_or_revision(
    annotations: dict[str, str], revision: str, number: str
) -> None:
    made = thing("FlagSet", "x", annotations=annotations, status={"lastAttemptedRevision": revision})
    assert change_request_number(made) == number


BANNER: Final = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}


class Preview(Desk):
    """A desk with a flag set of a pull request, which is compared with `flags`, and both as delivered."""

    def __init__(self, *alerts: Any) -> None:
        super().__init__(*alerts)
        self.version = 10
        self.provider = replace(
            self.provider, spec={"type": "githubpullrequestcomment"}, resource_version="5"
        )
        self.objects.learn(self.provider)
        self.box = self.outbox.open(CHAT, FlagProviderStatus())
        self.stands("flags", {"banner": BANNER})

    def stands(self, name: str, flags: dict[str, Any], reason: str = "Succeeded") -> list[str]:
        """Reasons of all that waits, once a flag set stands so."""
        self.version += 1
        found = status(reason, f"sha256:{sorted(flags.items())}")
        found["target"] = [{"kind": "FeatureFlagConfiguration", "name": name}]
        found["lastAttemptedRevision"] = f"refs/pull/7/head@sha1:{self.version}"
        notes = {}
        if name == "preview":
            notes = {"flagstaff.dev/compared-with": "flags"}
        else:
            found["lastAttemptedRevision"] = f"main@sha1:{self.version}"
        version = str(self.version)
        own = {"flagSetId": name, "flagstaff.dev/revision": found["lastAttemptedRevision"]}
        key = ObjectKey("FeatureFlagConfiguration", "shop", name)
        self.objects.learn(
            Resource(key, name, 1, version, spec={"flagSpec": {"flags": flags, "metadata": own}})
        )
        self.objects.learn(thing("FlagSet", name, status=found, resourceVersion=version, annotations=notes))
        return self.waiting_reasons()


async def deliver(desk: Desk, found: Service, tasks: ForeignTasks = TRUSTED) -> None:
    """All that waits, to the service."""
    count = len(desk.box.pending)
    done: list[str] = []
    async with http_sender() as sender, asyncio.timeout(20):
        deliverer = Deliverer(
            desk.outbox, Senders(sender, sender, sender), desk.objects, None, lambda: NOW,  # type: ignore[arg-type]
            asyncio.get_running_loop().time, lambda: 1.0, lambda _, result: done.append(result), tasks,
        )  # fmt: skip
        desk.box.mark_stored(desk.box.pending)
        deliverer.use(CHAT, target(found))
        while len(done) < count:  # noqa: ASYNC110 - results come by a plain call
            await asyncio.sleep(0.001)
        deliverer.stop(CHAT)
    assert set(done) == {"delivered"}


async def test_a_pull_request_shows_what_it_changes_against_the_flags_it_is_compared_with() -> None:
    desk = Preview(alert())
    changed = {"banner": {**BANNER, "defaultVariant": "on"}, "new": BANNER}
    async with service("githubpullrequestcomment") as found:
        assert desk.stands("preview", changed) == ["Applied"]
        await deliver(desk, found)
        (text,) = found.comments.values()
        assert "Compared with FlagSet flags:" in text
        assert "**Flags**: 2 flags differ; 1 of them gives up to 100 % of users another value" in text
        assert (
            "! banner: default off (false) → on (true)\n"
            "    100 % of users get another value (exact, by arithmetic): off → on\n```"
        ) in text
        assert "```diff\n+ new: added, default off (false)\n```" in text
        # What it is compared with changes, too.
        assert desk.stands("flags", {**changed, "old": BANNER}) == ["Applied"]
        await deliver(desk, found)
        (text,) = found.comments.values()
        assert "```diff\n- old: removed\n" in text
        assert desk.stands("preview", changed, "BuildFailed") == ["BuildFailed"]
        await deliver(desk, found)
        (text,) = found.comments.values()
        assert "**FlagSet/preview.shop**: BuildFailed" in text
        assert "so: BuildFailed" in text


class Limited:
    """Runs nothing: what is given takes too much."""

    async def run(self, task: Task, *_: object, **__: object) -> Any:
        raise Stalled("LimitExceeded", f"{task.name} needs more CPU time than it may use; {task.remedy}")


async def test_a_comparison_that_takes_too_much_is_without_shares_of_users() -> None:
    desk = Preview(alert())
    desk.stands("preview", {"banner": {**BANNER, "defaultVariant": "on"}})
    async with service("githubpullrequestcomment") as found:
        await deliver(desk, found, Limited())
    (text,) = found.comments.values()
    assert "```diff\n! banner: default off (false) → on (true)\n```" in text
    assert "% of users" not in text


def test_a_pull_request_gets_no_comment_twice_and_other_commits_get_none() -> None:
    desk = Preview(alert())
    assert desk.waiting_reasons() == []
    desk.stands("preview", {"banner": BANNER})
    again = Desk(*(each for each in desk.objects if each.key != CHAT))
    again.objects.learn(desk.provider)
    again.box = again.outbox.open(CHAT, desk.box.status())
    before = list(again.box.pending)
    assert len(before) == 1
    again.compare()
    assert list(again.box.pending) == before


async def test_flags_that_are_not_whole_are_not_compared() -> None:
    desk = Preview(alert())
    desk.stands("preview", {"banner": BANNER})
    desk.objects.forget(ObjectKey("FeatureFlagConfiguration", "shop", "flags"))
    async with service("githubpullrequestcomment") as found:
        await deliver(desk, found)
    (text,) = found.comments.values()
    assert "unknown: one of the two is incomplete" in text
