"""The receiver's port, over HTTP on loopback: its paths, and how much it takes."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from datetime import UTC, datetime
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from controller.api.meta import ObjectKey, Resource
from controller.events.receiver_stage import FLAG_RECEIVERS
from controller.events.webhook_payloads import MOST_BYTES
from controller.events.webhook_server import (
    BURST,
    LIMITS,
    PER_SECOND,
    REMEMBERED,
    WINDOW,
    Endpoint,
    Endpoints,
    Receiver,
    ReplayGuard,
    webhook_path,
)
from controller.runtime.cache import Cache
from controller.runtime.metrics import ControllerMetrics
from controller.runtime.process import Role
from controller.runtime.shards import Shard
from controller.runtime.watch_health import WatchHealth
from evaluator.http.messages import Request, Response
from tests.unit.evaluator.http.serving import run_listener
from tests.worlds.events import COMMIT, GITHUB, GITLAB, OLD, TOKEN, ZEROS, body_of, headers_of
from tests.worlds.objects import cache_of, thing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from controller.api.flagreceiver import Sender

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = ObjectKey("FlagReceiver", "shop", "push")
PATH = webhook_path(TOKEN, KEY)


def flag_source(name: str, *, branch: str = "main", namespace: str = "shop", **more: Any) -> Resource:
    git = {"url": "ssh://git@github.com/acme/flags", "ref": {"branch": branch}}
    return thing("FlagSource", name, {"interval": "1h", "git": git, **more}, namespace=namespace)


def labelled(name: str, kind: str = "FlagSource", spec: Any = None, status: Any = None) -> Resource:
    """An object of another shard; a source that follows what is pushed."""
    return thing(kind, name, flag_source(name).spec if spec is None else spec, status, labels={"shard": "a"})


class PushReceiver:
    """A receiver with one endpoint, and what came of it."""

    def __init__(self, *sources: Resource, sender: Sender = "github", only: str = "*") -> None:
        self.objects = cache_of(*sources, stages=(FLAG_RECEIVERS,))
        self.endpoints = Endpoints()
        self.endpoints.open(Endpoint(KEY, sender, (TOKEN, OLD), sources=(only,)))
        self.expected: list[tuple[str, str]] = []
        self.woken: list[str] = []
        self.time = 0.0
        self.role = Role(leading=True)
        self.counted: list[tuple[str, str]] = []
        self.changed: list[tuple[str, Collection[str]]] = []
        self.receiver = Receiver(
            self.endpoints,
            self.objects,
            expect=lambda key, commit, now: self.expected.append((key.name, commit)),
            wake=lambda key: self.woken.append(key.name),
            now=lambda: NOW,
            clock=lambda: self.time,
            role=self.role,
            changed=lambda namespace, repositories: self.changed.append((namespace, repositories)),
            received=lambda sender, outcome: self.counted.append((sender, outcome)),
        )
        self.sender = sender

    def send(self, payload: Any = GITHUB, *, path: str = PATH, **headers: Any) -> Response:
        body = body_of(payload)
        given = headers_of(self.sender, body, **headers)
        return self.receiver.answer(Request("POST", path, "", given, body, "127.0.0.1:1"))


def json_of(response: Response) -> Any:
    return json.loads(response.body)


def test_just_the_sources_that_follow_what_was_pushed_are_woken() -> None:
    around = PushReceiver(
        flag_source("production"),
        flag_source("second"),
        flag_source("staging", branch="staging"),
        flag_source("elsewhere", namespace="other"),
        flag_source("resting", suspend=True),
        thing("FlagSource", "malformed", {"git": 7}),
    )
    response = around.send()
    assert response.status == 200
    assert json_of(response)["woken"] == ["FlagSource/shop/production", "FlagSource/shop/second"]
    assert around.woken == ["production", "second"]
    assert around.expected == [("production", COMMIT), ("second", COMMIT)]
    ((namespace, repositories),) = around.changed
    assert (namespace, "github.com/acme/flags" in repositories) == ("shop", True)


def test_a_registrys_push_wakes_the_sources_of_the_tag_and_they_are_to_show_its_digest() -> None:
    def artifact(name: str, **spec: Any) -> Resource:
        return thing("FlagSource", name, {"oci": {"url": "oci://harbor.example/shop/flags", **spec}})

    around = PushReceiver(
        artifact("eu", ref={"tag": "eu"}),
        artifact("us", ref={"tag": "us"}),
        flag_source("git"),
        sender="harbor",
    )
    resources = [
        {"resource_url": "harbor.example/shop/flags:eu", "tag": "eu", "digest": f"sha256:{'d' * 64}"}
    ]
    payload = {"type": "PUSH_ARTIFACT", "event_data": {"resources": resources}}
    assert around.send(payload, token=b"a guess").status == 401
    assert json_of(around.send(payload))["woken"] == ["FlagSource/shop/eu"]
    assert around.expected == [("eu", "d" * 64)]


class WatchedSpec(dict[str, Any]):
    """A spec that counts how often it is read."""

    reads = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.reads += 1
        return super().get(key, default)


def test_sources_of_other_repositories_are_not_read() -> None:
    git = {"url": "https://github.com/acme/others", "ref": {"branch": "main"}}
    spec = WatchedSpec(interval="1h", git=git)
    around = PushReceiver(flag_source("production"), thing("FlagSource", "other", spec))
    spec.reads = 0
    assert json_of(around.send())["woken"] == ["FlagSource/shop/production"]
    assert spec.reads == 0


def test_only_sources_that_the_receiver_names_are_woken() -> None:
    around = PushReceiver(flag_source("production"), flag_source("second"), only="second")
    assert json_of(around.send())["woken"] == ["FlagSource/shop/second"]


def test_a_push_that_no_source_follows_is_answered_with_an_explanation() -> None:
    response = PushReceiver(flag_source("staging", branch="staging")).send()
    assert response.status == 200
    assert json_of(response) == {"message": "no source here follows what was pushed", "woken": []}


def test_a_deleted_branch_wakes_and_is_not_waited_for() -> None:
    around = PushReceiver(flag_source("production"))
    around.send({**GITHUB, "after": ZEROS, "head_commit": None})
    assert (around.woken, around.expected) == (["production"], [])


def test_a_ping_is_answered_and_wakes_no_source() -> None:
    around = PushReceiver(flag_source("production"))
    assert around.send(event="ping").status == 200
    assert around.woken == []


def test_senders_with_the_token_before_find_their_old_path() -> None:
    around = PushReceiver(flag_source("production"))
    assert around.send(token=OLD, path=webhook_path(OLD, KEY)).status == 200


def test_a_wrong_signature_wakes_no_source_and_the_answer_says_what_to_do() -> None:
    around = PushReceiver(flag_source("production"))
    response = around.send(token=b"a guess")
    assert response.status == 401
    assert "token of the Secret" in json_of(response)["message"]
    assert around.woken == []


def test_every_path_that_is_not_there_answers_alike() -> None:
    around = PushReceiver(flag_source("production"))
    near = PATH[:-1] + ("0" if PATH[-1] != "0" else "1")
    answers = [around.send(path=path) for path in (near, "/hook/", "/hook/x/y", PATH + "/", "/hook/ü")]
    assert {(each.status, each.body, each.headers) for each in answers} == {
        (404, answers[0].body, answers[0].headers)
    }


def test_a_delivery_counts_once() -> None:
    around = PushReceiver(flag_source("production"))
    assert [around.send().status for _ in range(2)] == [200, 409]
    assert around.send(x_github_delivery="renamed").status == 409
    assert around.woken == ["production"]


def test_a_refused_delivery_may_come_again() -> None:
    around = PushReceiver(flag_source("production"))
    assert [around.send(token=b"a guess").status, around.send().status] == [401, 200]


def test_a_receiver_takes_only_so_many_and_says_when_to_come_again() -> None:
    around = PushReceiver(flag_source("production"))
    for number in range(int(BURST)):
        assert around.send({**GITHUB, "number": number}).status == 200
    refused = around.send({**GITHUB, "number": -1})
    assert (refused.status, dict(refused.headers)["retry-after"]) == (429, "1")
    around.time += 1.0
    assert around.send({**GITHUB, "number": -1}).status == 200


def test_a_sender_without_the_token_cannot_use_up_the_limit_of_others() -> None:
    around = PushReceiver(flag_source("production"))
    for _ in range(int(BURST) * 2):
        around.send(token=b"a guess")
    assert around.send().status == 200


def test_a_suspended_receiver_says_so() -> None:
    around = PushReceiver(flag_source("production"))
    around.objects.learn(thing("FlagReceiver", "push", {"suspend": True}, {"webhookPath": PATH}))
    assert around.send().status == 503
    assert around.woken == []


def test_one_that_was_suspended_before_we_began_says_so_too() -> None:
    around = PushReceiver(thing("FlagReceiver", "push", {"suspend": True}, {"webhookPath": PATH}))
    around.endpoints.close(KEY)
    assert around.send().status == 503
    assert around.send(path="/hook/None").status == 404


def test_a_replica_that_does_not_lead_takes_nothing_and_says_when_to_try_again() -> None:
    around = PushReceiver(flag_source("production"))
    around.role.leading = False
    for path in (PATH, "/hook/unknown"):
        response = around.send(path=path)
        assert (response.status, dict(response.headers)["retry-after"]) == (503, "5")
    around.role.leading = True
    assert (around.send().status, around.woken) == (200, ["production"])


def test_a_push_wakes_the_sources_of_the_receiver_s_own_shard() -> None:
    around = PushReceiver(flag_source("ours"), labelled("theirs"))
    around.role.shard = Shard.of("!shard", ())
    assert json_of(around.send())["woken"] == ["FlagSource/shop/ours"]
    assert around.expected == [("ours", COMMIT)]


def test_a_push_to_another_shard_s_receiver_is_answered_with_where_to_send_it() -> None:
    around = PushReceiver(labelled("push", "FlagReceiver", {}, {"webhookPath": PATH}))
    around.role.shard = Shard.of("!shard", ())
    around.endpoints.close(KEY)
    response = around.send()
    assert response.status == 404
    assert "ask the Service of that one" in json_of(response)["message"]


def test_a_receiver_that_is_still_to_be_opened_is_to_be_asked_again() -> None:
    around = PushReceiver(thing("FlagReceiver", "push", {}, {"webhookPath": PATH}))
    around.endpoints.close(KEY)
    response = around.send()
    assert (response.status, dict(response.headers)["retry-after"]) == (503, "5")
    assert around.send(path="/hook/None").status == 404


COUNTED: dict[str, tuple[str, str, Callable[[PushReceiver], object]]] = {
    "woke": ("github", "woke", lambda around: around.send()),
    "unmatched": ("github", "unmatched", lambda around: around.send({**GITHUB, "ref": "refs/heads/x"})),
    "ignored": ("github", "ignored", lambda around: around.send(event="ping")),
    "unsigned": ("github", "unsigned", lambda around: around.send(token=b"a guess")),
    "malformed": ("github", "malformed", lambda around: around.send([])),
    "too large": ("github", "too_large", lambda around: around.send(" " * MOST_BYTES)),
    "replayed": ("github", "replayed", lambda around: [around.send() for _ in range(2)]),
    "limited": ("github", "limited", lambda around: [around.send({**GITHUB, "n": n}) for n in range(61)]),
    "unknown": ("none", "unknown", lambda around: around.send(path="/hook/unknown")),
}  # fmt: skip


@pytest.mark.parametrize(("sender", "outcome", "send"), COUNTED.values(), ids=COUNTED)
def test_each_request_counts_as_what_came_of_it(
    sender: str, outcome: str, send: Callable[[PushReceiver], object]
) -> None:
    around = PushReceiver(flag_source("production"))
    send(around)
    assert around.counted[-1] == (sender, outcome)


def test_the_metric_has_fixed_words_alone() -> None:
    metrics = ControllerMetrics(
        Cache(), {}, lambda: NOW, WatchHealth(lambda: 0.0), Role(), CollectorRegistry(auto_describe=False)
    )
    metrics.count_webhook("github", "woke")
    metrics.count_webhook("github", "woke")
    text = generate_latest(metrics.registry).decode()
    assert 'flagstaff_receiver_requests_total{outcome="woke",type="github"} 2.0' in text


def test_the_log_has_neither_tokens_nor_what_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    around = PushReceiver(flag_source("production"))
    around.send({**GITHUB, "secret": "in the payload"})
    around.send(token=b"a guess")
    around.sender = "gitlab"
    around.send(GITLAB, token=b"a-guessed-token")
    private = [TOKEN, OLD, b"a guess", b"a-guessed-token", b"payload", b"acme", PATH.encode()]
    assert caplog.text
    assert [each for each in private if each.decode() in caplog.text] == []


async def test_over_the_wire_a_push_wakes_and_an_oversized_one_is_refused() -> None:
    around = PushReceiver(flag_source("production"))
    async with run_listener(around.receiver.routes(), LIMITS) as (_, port):
        assert (await post(port, PATH, body_of(GITHUB)))[0] == 200
        assert (await post(port, PATH, b" " * (MOST_BYTES + 1)))[0] == 413
        assert (await post(port, "/hook/unknown", b"{}"))[0] == 404
        assert (await post(port, "/", b"{}"))[0] == 404
    assert around.woken == ["production"]


async def post(port: int, path: str, body: bytes) -> tuple[int, bytes]:
    def send() -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        headers = {**dict(headers_of("github", body)), "content-type": "application/json"}
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content

    return await asyncio.to_thread(send)


def endpoint(*tokens: bytes, key: ObjectKey = KEY) -> Endpoint:
    return Endpoint(key, "github", tokens)


def test_a_path_depends_on_token_namespace_and_name() -> None:
    keys = [KEY, ObjectKey("FlagReceiver", "shop", "other"), ObjectKey("FlagReceiver", "sho", "p/push")]
    paths = {webhook_path(token, key) for token in (TOKEN, OLD) for key in keys}
    assert len(paths) == 6
    assert all(re.fullmatch(r"/hook/[0-9a-f]{64}", path) for path in paths)


def test_both_tokens_paths_are_answered_and_those_of_older_ones_are_not() -> None:
    endpoints = Endpoints()
    endpoints.open(endpoint(b"oldest"))
    endpoints.open(endpoint(TOKEN, OLD))
    found = [endpoints.find(webhook_path(token, KEY)) for token in (TOKEN, OLD, b"oldest")]
    assert [each is not None for each in found] == [True, True, False]


def test_closing_forgets_only_its_own_tokens() -> None:
    endpoints, other = Endpoints(), ObjectKey("FlagReceiver", "shop", "other")
    endpoints.open(endpoint(TOKEN))
    endpoints.open(endpoint(TOKEN, key=other))
    endpoints.close(KEY)
    endpoints.close(KEY)
    assert endpoints.find(webhook_path(TOKEN, KEY)) is None
    assert endpoints.find(webhook_path(TOKEN, other)) is not None


def test_a_token_is_not_printed() -> None:
    assert TOKEN.decode() not in repr(endpoint(TOKEN))


def test_deliveries_are_remembered_when_the_receiver_reopens() -> None:
    endpoints = Endpoints()
    endpoints.open(endpoint(TOKEN))
    endpoints.guard(KEY).take("a", 0.0)
    endpoints.open(endpoint(TOKEN, OLD))
    assert endpoints.guard(KEY).is_replay("a", 1.0)


def test_a_delivery_is_a_replay_within_the_window_only() -> None:
    guard = ReplayGuard()
    guard.take("a", 100.0)
    assert guard.is_replay("a", 100.0 + WINDOW - 1)
    assert not guard.is_replay("a", 100.0 + WINDOW)
    assert not guard.is_replay("b", 100.0)


def test_more_than_a_burst_waits_and_what_waited_is_no_replay() -> None:
    guard = ReplayGuard()
    taken = [guard.take(str(number), 0.0) for number in range(int(BURST) + 1)]
    assert taken[:-1] == [0.0] * int(BURST)
    assert taken[-1] == 1 / PER_SECOND
    assert not guard.is_replay(str(int(BURST)), 0.0)
    assert guard.take(str(int(BURST)), taken[-1]) == 0.0


@settings(max_examples=30)
@given(st.lists(st.floats(0, 5), min_size=1, max_size=200))
def test_deliveries_beyond_the_rate_wait(pauses: list[float]) -> None:
    guard, now, taken = ReplayGuard(), 0.0, 0
    for number, pause in enumerate(pauses):
        now += pause
        taken += guard.take(str(number), now) == 0.0
    assert taken <= BURST + sum(pauses) * PER_SECOND + 1


def test_remembered_deliveries_are_bounded() -> None:
    guard = ReplayGuard()
    for number in range(REMEMBERED + 10):
        guard.take(str(number), number / PER_SECOND / 10 + number)
    assert not guard.is_replay("0", 0.0)
    assert guard.is_replay(str(REMEMBERED + 9), 0.0)
