"""Who is let in, by what the cluster says of a token and of what its user may read."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter

import pytest

from controller.proxy.access import MOST_REFUSED, MOST_REFUSED_IN_ALL, REFUSED_WINDOW, REVIEWS, AccessReviews
from controller.proxy.users import User
from controller.runtime.setbacks import Failed
from evaluator.http.messages import Call, Code
from evaluator.wire.sync_messages import GET_METADATA
from tests.waiting import until
from tests.worlds.proxy import FETCH, SYNC, Scene, flags, sent_values

A, B = ("a", "web"), ("b", "web")


def scene(auth: str = "enforce") -> Scene:
    """Two tenants, each with a flag set; `ann` may read that of a, `bob` that of b."""
    made = Scene(auth)
    made.reviews.rights = {"ann": {A}, "bob": {B}}
    made.learn("a/web", flags("of a", flagSetId="a-id"))
    made.learn("b/web", flags("of b", flagSetId="b-id"))
    return made


@pytest.mark.parametrize(
    ("token", "selector", "code"),
    [
        ("", "a/web", Code.UNAUTHENTICATED),
        ("eve", "a/web", Code.UNAUTHENTICATED),
        ("x" * 20_000, "a/web", Code.UNAUTHENTICATED),
        ("bob", "a/web", Code.PERMISSION_DENIED),
        ("bob", "a/none", Code.PERMISSION_DENIED),
    ],
    ids=["no token", "unknown token", "token too long", "another tenant", "what is not there"],
)
@pytest.mark.parametrize("path", [SYNC, FETCH], ids=["stream", "fetch"])
async def test_enforce_refuses(token: str, selector: str, code: Code, path: str) -> None:
    made = scene()
    stream = made.open(selector, token, path=path)
    await made.rest()
    assert stream.ended is not None
    assert (stream.ended[0], stream.sent) == (code, [])


async def test_enforce_serves_a_client_once_its_right_to_read_is_known() -> None:
    made = scene()
    stream = made.open("a/web", "ann")
    assert (stream.sent, stream.ended) == ([], None)
    await made.rest()
    again = made.open("a/web", "ann")
    assert (sent_values(stream), sent_values(again)) == (["of a"], ["of a"])
    assert made.reviews.asked == [("ann",), ("ann", "a", "web")]


async def test_many_at_once_with_one_token_are_one_review() -> None:
    made = scene()
    streams = [made.open("a/web", "ann") for _ in range(50)]
    await made.rest()
    assert all(sent_values(each) == ["of a"] for each in streams)
    assert Counter(made.reviews.asked) == {("ann",): 1, ("ann", "a", "web"): 1}


async def test_a_stream_that_hangs_up_during_the_review_leaves_nothing() -> None:
    made = scene()
    made.open("a/web", "ann").hang_up()
    await made.rest()
    authorizer = made.proxy.authorizer
    assert (made.proxy.hub.streams, authorizer.waiting.taken, authorizer.limits.taken) == (0, 0, 0)


@pytest.mark.parametrize("wanted", ["a-id", "b-id"])
async def test_a_flag_set_id_is_looked_up_only_where_the_caller_may_read(wanted: str) -> None:
    made = scene()
    stream = made.open(f"flagSetId={wanted}", "ann")
    await made.rest()
    assert (sent_values(stream), stream.ended) == ((["of a"] if wanted == "a-id" else []), None)


async def test_another_tenants_claim_to_a_flag_set_id_takes_nothing_away() -> None:
    made = scene()
    made.learn("c/web", flags("stolen", flagSetId="a-id"), creationTimestamp="2020-01-01T00:00:00Z")
    stream = made.open("flagSetId=a-id", "ann")
    await made.rest()
    made.learn("d/web", flags("too", flagSetId="a-id"), creationTimestamp="2019-01-01T00:00:00Z")
    made.learn("a/web", flags("of a, newer", flagSetId="a-id"))
    await made.rest()
    assert sent_values(stream) == ["of a", "of a, newer"]


async def test_a_stream_that_waits_for_a_flag_set_id_gets_it_when_it_comes() -> None:
    made = scene()
    stream = made.open("flagSetId=new", "ann")
    await made.rest()
    made.learn("a/web", flags("of a", flagSetId="new"))
    await made.rest()
    assert sent_values(stream) == ["of a"]


async def test_warn_serves_everybody_at_once_and_names_the_clients_that_enforce_would_refuse() -> None:
    made = scene("warn")
    streams = [made.open("a/web", token) for token in ("", "eve", "bob", "ann")]
    assert all(sent_values(each) == ["of a"] for each in streams)
    await made.rest()
    looks = {"no_token": 1, "invalid_token": 1, "forbidden": 1, "allowed": 1}
    assert made.proxy.authorizer.results == looks
    warned = sorted(event.message for _, event in made.proxy.notices.take())
    assert [each.split()[1] for each in warned] == ["10.0.0.1", "10.0.0.2", "bob"]
    assert made.proxy.notices.take() == []


async def test_warn_names_clients_served_by_a_flag_set_id_without_the_right() -> None:
    made = scene("warn")
    streams = [made.open("flagSetId=a-id", token) for token in ("", "eve", "bob", "ann")]
    assert all(sent_values(each) == ["of a"] for each in streams)
    await made.rest()
    looks = {"no_token": 1, "invalid_token": 1, "forbidden": 1, "allowed": 1}
    assert made.proxy.authorizer.results == looks
    warned = sorted(
        (resource.name, event.message.split()[1]) for resource, event in made.proxy.notices.take()
    )
    assert warned == [("web", "10.0.0.1"), ("web", "10.0.0.2"), ("web", "bob")]


async def test_off_looks_at_nothing() -> None:
    made = scene("off")
    assert sent_values(made.open("a/web", "eve")) == ["of a"]
    await made.rest()
    assert (made.reviews.asked, made.proxy.authorizer.results) == ([], {})


async def test_with_the_api_server_down_only_known_clients_are_admitted() -> None:
    made = scene()
    made.open("a/web", "ann")
    await made.rest()
    made.reviews.down, made.now = True, made.now + 1_000
    known, unknown = made.open("a/web", "ann"), made.open("b/web", "bob")
    await made.rest()
    assert unknown.ended is not None
    assert (sent_values(known), unknown.ended[0]) == (["of a"], Code.UNAVAILABLE)
    made.now += 4_000
    late = made.open("a/web", "ann")
    await made.rest()
    assert late.ended is not None
    assert late.ended[0] is Code.UNAVAILABLE


async def test_a_token_is_good_no_longer_than_it_says() -> None:
    made = scene()
    claims = base64.urlsafe_b64encode(json.dumps({"exp": made.now + 30}).encode()).decode()
    token = f"ann#.{claims}.signature"
    made.open("a/web", token)
    await made.rest()
    made.reviews.down, made.now = True, made.now + 31
    stream = made.open("a/web", token)
    await made.rest()
    assert stream.ended is not None
    assert stream.ended[0] is Code.UNAVAILABLE


async def test_a_right_that_is_withdrawn_ends_the_streams_it_opened() -> None:
    made = scene()
    ann, bob = made.open("a/web", "ann"), made.open("b/web", "bob")
    await made.rest()
    made.reviews.rights["ann"].clear()
    made.now += 61
    await made.proxy.end_revoked()
    assert ann.ended is not None
    assert (ann.ended[0], bob.ended) == (Code.PERMISSION_DENIED, None)


async def test_the_deletion_of_a_pod_ends_the_streams_of_its_token_at_once() -> None:
    made = scene()
    made.reviews.rights |= {"pod-1": {A}, "pod-2": {A}}
    first, second, stopped = (made.open("a/web", name) for name in ("pod-1", "pod-2", "pod-1"))
    await made.rest()
    stopped.hang_up()
    made.proxy.pod_gone("u-pod-1")
    assert first.ended == (Code.PERMISSION_DENIED, "the Pod of this token was deleted")
    assert second.ended is None


async def test_an_api_server_that_does_not_answer_withdraws_nothing() -> None:
    made = scene()
    stream = made.open("a/web", "ann")
    await made.rest()
    made.reviews.down, made.now = True, made.now + 10_000
    await made.proxy.end_revoked()
    assert stream.ended is None


async def test_a_refusal_is_asked_again_soon() -> None:
    made = scene()
    made.open("b/web", "ann")
    await made.rest()
    made.reviews.rights["ann"].add(B)
    made.now += 6
    stream = made.open("b/web", "ann")
    await made.rest()
    assert sent_values(stream) == ["of b"]


async def test_what_is_remembered_of_tokens_is_bounded() -> None:
    made = scene()
    made.access = type(made.access)(made.reviews, clock=lambda: 0.0, unix_time=lambda: 0.0, most=10)
    for number in range(100):
        assert await made.access.user(f"ann#{number}", "10.0.0.1") is not None
    call = Call(SYNC, (("authorization", "Bearer ann#0"),), "")
    newest = Call(SYNC, (("authorization", "Bearer ann#99"),), "")
    assert (made.access.known_user(call), made.access.known_user(newest)) == (None, User("ann"))


async def test_a_flood_of_wrong_tokens_drops_no_good_one_and_is_reviewed_no_further() -> None:
    made = scene()
    made.access = type(made.access)(
        made.reviews, clock=lambda: made.now, unix_time=lambda: made.now, most=500
    )
    good = Call(SYNC, (("authorization", "Bearer ann"),), "")
    assert await made.access.user("ann", "10.0.0.1") is not None
    for number in range(MOST_REFUSED):
        assert await made.access.user(f"wrong-{number}", "10.0.0.9") is None
    asked = len(made.reviews.asked)
    with pytest.raises(Failed, match=r"10\.0\.0\.9 sends too many tokens"):
        await made.access.user("wrong-again", "10.0.0.9")
    assert len(made.reviews.asked) == asked
    assert made.access.known_user(good) == User("ann")
    assert await made.access.user("bob", "10.0.0.2") is not None
    made.now += REFUSED_WINDOW + 1
    assert await made.access.user("bob#new", "10.0.0.9") is not None


async def test_wrong_tokens_of_a_thousand_addresses_cost_a_bounded_number_of_reviews() -> None:
    made = scene()
    assert await made.access.user("ann", "10.0.0.1") is not None
    refused: list[str] = []
    for number in range(60):
        for host in range(1000):
            try:
                assert await made.access.user(f"wrong-{host}-{number}", f"10.1.0.{host}") is None
            except Failed as failed:
                refused.append(failed.reason)
    assert len(made.reviews.asked) <= 2 * MOST_REFUSED_IN_ALL
    assert set(refused) == {"TooManyTokens"}
    # A new address may still have its token reviewed, and what is known stays so.
    assert await made.access.user("bob", "10.0.0.2") is not None
    assert await made.access.user("ann", "10.0.0.1") is not None
    made.now += REFUSED_WINDOW + 1
    assert await made.access.user("bob#new", "10.1.0.7") is not None


async def test_metadata_is_served_to_every_client_with_a_token() -> None:
    made = scene()
    known, unknown = (made.open("", token, path=GET_METADATA) for token in ("ann", ""))
    await made.rest()
    assert unknown.ended is not None
    assert (len(known.sent), unknown.ended[0]) == (1, Code.UNAUTHENTICATED)


def test_a_bound_token_names_its_pod() -> None:
    key = "authentication.kubernetes.io/pod-"
    extra = ((f"{key}name", ("web-1",)), (f"{key}uid", ("u1",)))
    caller = User("system:serviceaccount:shop:web", extra=extra).caller
    assert (caller.namespace, caller.verified) == ("shop", True)
    assert (caller.pod, caller.pod_uid, caller.verified) == ("web-1", "u1", True)


async def test_no_error_quotes_a_token() -> None:
    made = scene()
    stream = made.open("a/web", "secret-token")
    await made.rest()
    assert stream.ended is not None
    assert "secret-token" not in stream.ended[1]


async def test_thousands_of_claims_keep_no_reader_waiting_for_its_own_namespace() -> None:
    made = scene()
    account = "system:serviceaccount:mine:web"
    made.reviews.rights[account] = {("mine", "web")}
    for number in range(2_000):
        made.learn(f"squat/x{number}", flags(flagSetId="id"), creationTimestamp="2019-01-01T00:00:00Z")
    made.learn("mine/web", flags("of mine", flagSetId="id"))
    stream = made.open("flagSetId=id", account)
    await made.rest()
    assert sent_values(stream) == ["of mine"]
    assert len(made.reviews.asked) == 2


async def test_a_reader_of_another_namespace_asks_about_each_claim_once_a_minute() -> None:
    made = scene()
    for number in range(100):
        made.learn(f"squat/x{number}", flags(flagSetId="id"), creationTimestamp="2019-01-01T00:00:00Z")
    made.learn("a/web", flags("of a", flagSetId="id"))
    stream = made.open("flagSetId=id", "ann")
    await made.rest()
    made.now += 30
    made.learn("a/web", flags("of a, newer", flagSetId="id"))
    await made.rest()
    assert sent_values(stream) == ["of a", "of a, newer"]
    assert max(Counter(each for each in made.reviews.asked if len(each) == 3).values()) == 1


class Reviews:
    """An API server that never answers about one user."""

    def __init__(self) -> None:
        self.asked = 0

    async def user(self, token: str) -> User | None:
        return User(token)

    async def may_read(self, user: User, namespace: str, name: str) -> bool:
        del namespace, name
        if user.name == "hostile":
            self.asked += 1
            await asyncio.Event().wait()
        return True


async def test_a_reader_has_half_of_the_reviews_at_a_time_and_another_one_is_reviewed() -> None:
    reviews = Reviews()
    access = AccessReviews(reviews, clock=lambda: 0.0, unix_time=lambda: 0.0)
    hostile = User("hostile")
    waiting = [
        asyncio.create_task(access.may_read(hostile, (f"ns-{number}", ""))) for number in range(4 * REVIEWS)
    ]
    await until(lambda: reviews.asked == REVIEWS // 2)
    assert await access.may_read(User("ann"), ("shop", ""))
    assert reviews.asked == REVIEWS // 2
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    access.close()
