"""Statuses of commits: what a Git server takes, and where a commit stands."""

from __future__ import annotations

import contextlib
from base64 import b64encode
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs
import pytest
from aiohttp import web

from controller.api.addresses import AddressRefused, require_address
from controller.api.flagprovider import FlagProviderSpec, FlagProviderStatus
from controller.events.deliverer import send_test_status
from controller.events.flag_set_progress import COMMITS, state_name
from controller.events.notice import ProviderTarget
from controller.events.service_types import is_known, post_of
from tests.unit.controller.events.schemas import SCHEMAS
from tests.web_server import web_server
from tests.worlds.events import CHAT, Desk, alert, event, failure_event, http_sender, message, status
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from controller.api.flagprovider import Message
    from controller.events.senders import PostResult

SHA: Final = "1" * 40
TOKEN: Final = "a-token"  # noqa: S105
BASIC: Final = b64encode(b":a-token").decode()
BEARER: Final = ("Authorization", f"Bearer {TOKEN}")
SERVERS: Final[dict[str, tuple[str, str, str, str]]] = {
    "github": ("shop/flags", f"/api/v3/repos/shop/flags/statuses/{SHA}", *BEARER),
    "gitea": ("shop/flags.git", f"/api/v1/repos/shop/flags/statuses/{SHA}", "Authorization", "token a-token"),
    "gitlab": (
        "shop/teams/flags", f"/api/v4/projects/shop%2Fteams%2Fflags/statuses/{SHA}", "PRIVATE-TOKEN", TOKEN,
    ),
    "bitbucket": ("shop/flags", f"/2.0/repositories/shop/flags/commit/{SHA}/statuses/build", *BEARER),
    "azuredevops": (
        "org/the%20project/_git/flags",
        f"/org/the%20project/_apis/git/repositories/flags/commits/{SHA}/statuses?api-version=7.1",
        "Authorization", f"Basic {BASIC}",
    ),
}  # fmt: skip
"""By type: a repository's path, and what the service documents: the request's path, a header, its value."""


@contextlib.asynccontextmanager
async def server(type_: str) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """(address, statuses) of a server that takes what the service documents, and nothing else."""
    _, path, header, value = SERVERS[type_]
    taken: list[dict[str, Any]] = []

    async def take(request: web.Request) -> web.Response:
        if request.headers.get(header) != value:
            return web.json_response({"message": "Bad credentials"}, status=401)
        if request.method != "POST" or request.raw_path != path:
            return web.json_response({"message": "Not Found"}, status=404)
        body = await request.json()
        if not jsonschema_rs.is_valid(SCHEMAS[type_], body):
            return web.json_response({"message": "Validation Failed"}, status=422)
        taken.append(body)
        return web.json_response({"id": 1}, status=201)

    async with web_server(web.route("*", "/{path:.*}", take)) as port:
        yield f"http://127.0.0.1:{port}", taken


async def send(type_: str, address: str, said: Message, token: str = TOKEN) -> PostResult:
    spec = FlagProviderSpec(type=type_)  # type: ignore[arg-type]
    target = ProviderTarget(spec, address, token, "shop", "controller-0")
    async with http_sender() as sender:
        return await sender.send(post_of(said, target), target.route)


def message_of(reason: str, **more: Any) -> Message:
    return message(reason=reason, metadata={"flagstaff.dev/revision": f"main@sha1:{SHA}"}, **more)


@pytest.mark.parametrize("type_", sorted(COMMITS))
async def test_a_server_takes_a_status_from_pending_to_success_or_failure(type_: str) -> None:
    async with server(type_) as (origin, taken):
        address = f"{origin}/{SERVERS[type_][0]}"
        for each in (
            message_of("Applied"),
            message_of("Propagated"),
            message_of("BuildFailed", state="failing", message="x" * 999),
        ):
            assert (await send(type_, address, each)).status == 201
        assert (await send(type_, address, message_of("Applied"), "another")).status == 401
    states = [each["state"].lower() for each in taken]
    assert states[0] in {"pending", "inprogress"}
    assert states[1] in {"success", "successful", "succeeded"}
    assert states[2] in {"failure", "failed"}
    assert len({str(each.get("context") or each.get("key")) for each in taken}) == 1


async def test_an_app_password_of_bitbucket_is_basic() -> None:
    spec = FlagProviderSpec(type="bitbucket")
    post = post_of(
        message_of("Applied"), ProviderTarget(spec, "https://bitbucket.org/shop/flags", "ada:secret")
    )
    assert post.headers["Authorization"] == f"Basic {b64encode(b'ada:secret').decode()}"
    assert post.url.startswith("https://api.bitbucket.org/2.0/repositories/shop/flags/commit/")


def test_github_itself_has_a_host_for_its_api() -> None:
    spec = FlagProviderSpec(type="github")
    post = post_of(message_of("Applied"), ProviderTarget(spec, "https://github.com/shop/flags.git", TOKEN))
    assert post.url == f"https://api.github.com/repos/shop/flags/statuses/{SHA}"


@pytest.mark.parametrize(
    ("type_", "address", "good"),
    [
        ("github", "https://github.com/shop/flags", True),
        ("github", "https://github.com/shop", False),
        ("github", "https://github.com/shop/flags/tree", False),
        ("github", "https://github.com/../flags", False),
        ("gitlab", "https://gitlab.com/a/b/c/d", True),
        ("gitlab", "https://gitlab.com/", False),
        ("azuredevops", "https://dev.azure.com/a/b/_git/c", True),
        ("azuredevops", "https://dev.azure.com/a/b", False),
    ],
)
def test_an_address_is_a_repository(type_: str, address: str, good: bool) -> None:
    with contextlib.nullcontext() if good else pytest.raises(AddressRefused, match="a repository's"):
        require_address(type_, address, allow_local=False)


def test_a_status_that_gitlab_has_already_is_no_failure() -> None:
    target = ProviderTarget(FlagProviderSpec(type="gitlab"), "https://gitlab.com/a/b", TOKEN)
    assert is_known(
        target, message_of("Applied"), b'{"message":"Cannot transition status via :enqueue from :pending"}'
    )
    assert not is_known(target, message_of("Applied"), b'{"message":"state is not valid"}')


@pytest.mark.parametrize(
    ("type_", "answer"),
    [
        ("github", b'{"message":"No commit found for SHA: 0000000000000000000000000000000000000000"}'),
        ("gitlab", b'{"message":"404 Commit Not Found"}'),
    ],
)
def test_a_server_that_misses_only_the_commit_of_a_test_accepted_address_and_token(
    type_: str, answer: bytes
) -> None:
    target = ProviderTarget(FlagProviderSpec(type=type_), f"https://{type_}.com/a/b", TOKEN)  # type: ignore[arg-type]
    assert is_known(target, message(alert="", reason="TestAlert"), answer)
    assert not is_known(target, message_of("Applied"), answer)
    assert not is_known(target, message(alert="", reason="TestAlert"), b'{"message":"404 Not Found"}')


MISSED: Final[dict[str, tuple[int, str]]] = {
    "gitea": (500, ""),
    "bitbucket": (404, "Commit not found"),
    "azuredevops": (
        404,
        "TF401175: The version descriptor could not be resolved to a version in the repository",
    ),
}
"""What a server answers to the status of a commit that it does not have."""


@pytest.mark.parametrize("type_", sorted(MISSED))
async def test_a_test_is_delivered_where_the_repository_is_there_and_the_token_taken(type_: str) -> None:
    path, status, header, value = SERVERS[type_]
    there = status.replace(SHA, "").partition("/commit")[0].partition("/statuses")[0]
    asked: list[str] = []

    async def take(request: web.Request) -> web.Response:
        if request.headers.get(header) != value:
            return web.json_response({"message": "Bad credentials"}, status=401)
        found = request.raw_path.startswith(there)
        asked.append(request.method)
        if request.method == "POST" and found:
            code, words = MISSED[type_]
            return web.json_response({"message": words}, status=code)
        wanted = there + ("?api-version=7.1" if type_ == "azuredevops" else "")
        good = request.method == "GET" and request.raw_path == wanted
        return web.json_response({"message": "" if good else "Not Found"}, status=200 if good else 404)

    spec = FlagProviderSpec(type=type_)  # type: ignore[arg-type]

    async def test(address: str, token: str = TOKEN) -> int:
        said = message(alert="", reason="TestAlert")
        target = ProviderTarget(spec, address, token, "shop", "controller-0")
        async with http_sender() as sender:
            return (await send_test_status(sender, said, target)).status

    async with web_server(web.route("*", "/{path:.*}", take)) as port:
        origin = f"http://127.0.0.1:{port}"
        assert await test(f"{origin}/{path}") == 200
        assert asked == ["POST", "GET"]
        assert await test(f"{origin}/{path.replace('flags', 'elsewhere')}") == 404
        assert await test(f"{origin}/{path}", "another") == 401


class Repository(Desk):
    """A desk whose provider keeps statuses of commits."""

    def __init__(self, *alerts: Any) -> None:
        super().__init__(*alerts)
        self.provider = replace(self.provider, spec={"type": "github"}, resource_version="5")
        self.objects.learn(self.provider)
        self.box = self.outbox.open(CHAT, FlagProviderStatus())

    def next_leader(self, kept: FlagProviderStatus) -> Desk:
        """Another leader over the same objects, with what a status kept."""
        again = Desk(*(each for each in self.objects if each.key != CHAT))
        again.objects.learn(self.provider)
        again.box = again.outbox.open(CHAT, kept)
        return again

    def stands(
        self, commit: str, reason: str = "Succeeded", propagated: str = "", **layers: str
    ) -> list[tuple[str, str]]:
        """(reason, state) of all that waits, once a flag set stands so. `layers`: messages of conditions."""
        found = status(reason, "sha256:1")
        found["lastAttemptedRevision"] = f"main@sha1:{commit * 40}"
        if propagated:
            found["conditions"].append(
                {"type": "Propagated", "status": propagated, "message": "2 of 2 evaluators"}
            )
        found["conditions"] += [
            {"type": type_, "status": "True", "message": text} for type_, text in layers.items()
        ]
        self.version = getattr(self, "version", 10) + 1
        self.objects.learn(thing("FlagSet", "flags", status=found, resourceVersion=str(self.version)))
        return [(each.reason, each.state or "") for each in self.box.pending.values()]


def test_a_commit_is_pending_until_it_is_served_and_stays_so() -> None:
    desk = Repository(alert())
    assert desk.stands("1") == [("Applied", "")]
    assert desk.stands("1", propagated="False") == [("Applied", "")]
    both = [("Applied", ""), ("Propagated", "")]
    assert desk.stands("1", propagated="True") == both
    assert desk.stands("1", propagated="False") == both
    assert desk.stands("2", propagated="True") == [*both, ("Propagated", "")]
    assert desk.stands("3", propagated="Unknown") == [*both, *[("Propagated", "")] * 2]


def test_a_commit_is_pending_at_each_step_of_a_rollout_until_every_user_has_it() -> None:
    desk = Repository(alert())
    for text in ("step 1/2: 10%", "step 1/2: 10%", "step 2/2: 50%"):
        desk.stands("1", propagated="True", RolloutActive=text)
    desk.stands("1", propagated="True")
    told = [(state_name(each), each.message) for each in desk.box.pending.values()]
    assert told == [
        ("pending", "step 1/2: 10%"), ("pending", "step 2/2: 50%"), ("success", "2 of 2 evaluators"),
    ]  # fmt: skip


def test_a_commit_is_pending_again_while_an_override_hides_a_flag_of_it() -> None:
    desk = Repository(alert())
    desk.stands("1", propagated="True")
    desk.stands("1", propagated="True", OverrideActive="flag is off")
    desk.stands("1", propagated="True")
    assert [state_name(each) for each in desk.box.pending.values()] == ["success", "pending", "success"]


def test_each_commit_that_fails_gets_a_failing_status_with_its_problem() -> None:
    desk = Repository(alert())
    assert desk.stands("1", "BuildFailed") == [("BuildFailed", "failing")]
    assert desk.stands("2", "BuildFailed") == [("BuildFailed", "failing")] * 2
    assert {each.message for each in desk.box.pending.values()} == {"so: BuildFailed"}
    assert desk.stands("3", propagated="True")[-1] == ("Propagated", "")


def test_a_commit_gets_no_status_twice_over_a_restart_and_none_for_events() -> None:
    desk = Repository(alert())
    desk.accept(event("Applied"), failure_event(), event("DriftCorrected", warning=True))
    assert desk.waiting_reasons() == []
    desk.stands("1", propagated="True")
    for key in tuple(desk.box.pending):
        desk.box.record_delivery(key, "2026-01-02T03:04:05Z")
    assert desk.next_leader(desk.box.status()).compare() == []


def test_a_status_that_nobody_wrote_before_a_kill_is_written_by_the_next_leader() -> None:
    desk = Repository(alert())
    kept = desk.box.status()
    desk.stands("1", propagated="True")
    again = desk.next_leader(kept)
    assert again.compare() == ["Propagated"]
    assert list(again.box.pending) == list(desk.box.pending)


def test_an_alert_on_errors_alone_receives_failing_commits() -> None:
    desk = Repository(alert(eventSeverity="error"))
    assert desk.stands("1", propagated="True") == []
    assert desk.stands("2", "BuildFailed") == [("BuildFailed", "failing")]


def test_what_is_of_no_commit_has_no_status() -> None:
    desk = Repository(alert(kind="FlagSource"), alert("sets"))
    desk.objects.learn(thing("FlagSource", "flags", status={"artifact": {"revision": f"main@sha1:{SHA}"}}))
    desk.objects.learn(
        thing("FlagSet", "image", status={**status(), "lastAttemptedRevision": "v1@sha256:" + "1" * 64})
    )
    assert desk.waiting_reasons() == []
