"""Who sees what of a cluster on the page, by what the API server says of a token and of its user."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kubernetes.aio import client

from controller.api.meta import ObjectKey
from controller.app.cluster_page import ClusterPage, ClusterViews
from controller.app.page_process import NamedCaller, TokenCallers
from controller.kube.client import Cluster
from controller.proxy.access import AccessReviews
from controller.proxy.users import User
from controller.runtime.setbacks import Failed
from evaluator.http.messages import Request, Response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NOW = 1_800_000_000.0


@dataclass
class Reviews:
    """The cluster's answers: users by token, and namespaces by user; an empty one is all."""

    users: dict[str, str] = field(default_factory=dict)
    rights: dict[str, set[str]] = field(default_factory=dict)
    away: bool = False

    async def user(self, token: str) -> User | None:
        if self.away:
            raise Failed("ReviewFailed", "no answer")
        return User(self.users[token]) if token in self.users else None

    async def may_read(self, user: User, namespace: str, name: str) -> bool:
        assert not name
        return namespace in self.rights.get(user.name, ())


def request_of(token: str = "", path: str = "/ui/flags", host: str = "") -> Request:
    headers = (("authorization", f"Bearer {token}"),) if token else ()
    return Request("GET", path, "", (*headers, ("host", host)), b"", "10.0.0.1:4000")


@contextlib.asynccontextmanager
async def views() -> AsyncIterator[ClusterViews]:
    """Flag sets of two namespaces, of a cluster that nobody watches."""
    cluster = Cluster(client.ApiClient(client.Configuration(host="http://127.0.0.1:1")))
    made = ClusterViews(cluster, ("",), "")
    for namespace in ("shop", "bank"):
        meta = {"namespace": namespace, "name": "flags"}
        made.objects.informer.learn("FeatureFlagConfiguration", {"metadata": meta, "spec": {"flagSpec": {}}})
    try:
        yield made
    finally:
        await made.close()
        await cluster.close()


def callers(shown: ClusterViews, reviews: Reviews) -> TokenCallers:
    access = AccessReviews(reviews, clock=asyncio.get_running_loop().time, unix_time=lambda: NOW)
    return TokenCallers(access, shown, lambda: NOW)


async def test_a_caller_sees_the_namespaces_whose_flag_sets_that_user_may_get() -> None:
    reviews = Reviews({"t1": "ann", "t2": "root", "t3": "eve"}, {"ann": {"shop"}, "root": {""}})
    async with views() as shown:
        who = callers(shown, reviews)
        seen = {token: await who.source_for(request_of(token)) for token in reviews.users}
        sets = {token: source.sets() for token, source in seen.items() if isinstance(source, ClusterPage)}
        assert sets == {"t1": ["shop/flags"], "t2": ["bank/flags", "shop/flags"], "t3": []}


async def test_changes_elsewhere_are_not_announced() -> None:
    reviews = Reviews({"t1": "ann"}, {"ann": {"shop"}})
    async with views() as shown:
        who = callers(shown, reviews)
        assert isinstance(who.changes_for(request_of("t1")), Response)
        await who.source_for(request_of("t1"))
        version = who.changes_for(request_of("t1"))
        assert not isinstance(version, Response)
        before = version()
        shown.objects.informer.forget(ObjectKey("FeatureFlagConfiguration", "bank", "flags"))
        assert version() == before
        shown.objects.informer.forget(ObjectKey("FeatureFlagConfiguration", "shop", "flags"))
        assert version() != before


def token_until(seconds: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": NOW + seconds}).encode()).decode().rstrip("=")
    return f"e30.{claims}.c2ln"


async def refusal_of(token: str, reviews: Reviews) -> tuple[int, str]:
    async with views() as shown:
        answer = await callers(shown, reviews).source_for(request_of(token))
        assert isinstance(answer, Response)
        assert (("www-authenticate", "Bearer") in answer.headers) == (answer.status == 401)
        return answer.status, answer.body.decode()


async def test_a_refusal_says_in_plain_words_what_to_do() -> None:
    for token, words in (
        ("", "needs the token of a user of the cluster"),
        (token_until(-1), "Your token has expired. Log in again"),
        (token_until(60), "The cluster does not accept your token. Log in again"),
    ):
        status, text = await refusal_of(token, Reviews())
        assert (status, words in text) == (401, True)
    status, text = await refusal_of("t1", Reviews(away=True))
    assert (status, "Try again soon" in text) == (503, True)


async def test_the_page_of_one_machine_answers_under_its_own_name_alone() -> None:
    async with views() as shown:
        who = NamedCaller(shown)
        assert isinstance(await who.source_for(request_of()), Response)
        who.name = "5f0c.localhost:4000"
        assert isinstance(await who.source_for(request_of(host="5f0c.localhost:4000")), ClusterPage)
        for host in ("localhost:4000", "127.0.0.1:4000", "evil.test", ""):
            answers = (await who.source_for(request_of(host=host)), who.changes_for(request_of(host=host)))
            assert [isinstance(one, Response) and one.status for one in answers] == [403, 403]


async def test_the_events_of_a_set_name_the_newest_change_of_each_flag() -> None:
    reviews = Reviews({"t1": "ann"}, {"ann": {"shop"}})
    async with views() as shown:
        flags = {key: {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"} for key in "ab"}
        written = {
            "labels": {"flagstaff.dev/flagset": "all"},
            "managedFields": [{"manager": "flagstaff-flagset/shop/all"}],
        }
        meta = {"namespace": "shop", "name": "flags", **written}
        body = {"metadata": meta, "spec": {"flagSpec": {"flags": flags}}}
        shown.objects.informer.learn("FeatureFlagConfiguration", body)
        told = (
            {"a": "added, default on (true)"},
            {"a": "default off → on"},
            {"b": "removed", "gone": "removed"},
        )
        for number, differences in enumerate(told):
            shown.objects.informer.learn("Event", event(number, json.dumps(differences)))
        shown.objects.informer.learn("Event", event(3, "{cut off"))
        source = await callers(shown, reviews).source_for(request_of("t1"))
        assert isinstance(source, ClusterPage)
        made = source.shown_set("shop/flags")
        assert made is not None
        last = {key: change.difference for key, change in made.last_changes.items()}
        assert last == {"a": "default off → on", "b": "removed"}
        changes = source.history("shop/flags", "a").changes
        assert [change.difference for change in changes] == ["default off → on", "added, default on (true)"]
        assert changes[0].author == "Ada <ada@example.com>"


def event(number: int, differences: str) -> dict[str, object]:
    notes = {"flagstaff.dev/differences": differences, "flagstaff.dev/author": "Ada <ada@example.com>"}
    return {
        "metadata": {"namespace": "shop", "name": f"e{number}", "annotations": notes},
        "involvedObject": {"kind": "FlagSet", "namespace": "shop", "name": "all"},
        "lastTimestamp": f"2026-11-28T12:00:0{number}Z",
    }
