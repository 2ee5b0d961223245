"""What apprise asks of each service, by our own client, and what becomes of the answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
import subprocess
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

import pytest
import trustme
from aiohttp import web

from controller.api.provider import FlagProviderSpec
from controller.notifications.forms import services
from controller.notifications.forms.payloads import post_of
from controller.notifications.forms.posts import DIRECT, ProviderTarget, Way
from controller.notifications.sending.apprise_sender import AppriseSender
from controller.notifications.sending.posting import Poster, PostResult
from controller.runtime.user_text.secret_texts import Tls
from tests.unit.controller.notifications.things import NOW, message
from tests.web_server import web_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from controller.notifications.forms.posts import Post
    from controller.notifications.sending.posting import Sender

BOT: Final = "tgram://123:t0k-en/-1001:7"
TOPIC: Final = "sns://AKIA1/s/ec%2Fret/eu-west-1/flags"
ARN: Final = "arn:aws:sns:eu-west-1:1:flags"
CREATED: Final = f'<CreateTopicResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><CreateTopicResult><TopicArn>{ARN}</TopicArn></CreateTopicResult></CreateTopicResponse>'
PUBLISHED: Final = '<PublishResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"/>'
SAID: Final = message(
    "k" * 64,
    message="1 changed: <b>banner</b>",
    metadata={"flagstaff.dev/changes": "~ banner: plain → christmas"},
)
WEBEX: Final = "t0k" * 30
TWILIO: Final = f"AC{'0' * 32}"
ASKED: Final = {
    "feishu://t0k-en": ("open.feishu.cn/open-apis/bot/v2/hook/t0k-en/", "<b>banner</b>"),
    "lark://t0k-en": ("open.larksuite.com/open-apis/bot/v2/hook/t0k-en", "<b>banner</b>"),
    "line://t0k/en=/U1": ("api.line.me/v2/bot/message/push", '"to": "U1"'),
    "pover://user@t0ken/phone": ("api.pushover.net/1/messages.json", "token=t0ken"),
    "signl4://t0ken": ("connect.signl4.com/webhook/t0ken/", "<b>banner</b>"),
    "sns://AKIA1/secret/eu-west-1/%2B15551234567": (
        "sns.eu-west-1.amazonaws.com/", "PhoneNumber=%2B15551234567",
    ),
    BOT: ("api.telegram.org/bot123:t0k-en/sendMessage", "&lt;b&gt;banner&lt;/b&gt;"),
    f"twilio://{TWILIO}:{'1' * 32}@15551234567/15557654321": (
        f"api.twilio.com/2010-04-01/Accounts/{TWILIO}/Messages.json", "To=%2B15557654321",
    ),
    f"webex://{WEBEX}": (f"api.ciscospark.com/v1/webhooks/incoming//{WEBEX}", "1 changed"),
    "webex://t0ken/room": ("webexapis.com/v1/messages", '"roomId": "room"'),
    "wecombot://t0k-en": ("qyapi.weixin.qq.com/cgi-bin/webhook/send?key=t0k-en", "<b>banner</b>"),
}  # fmt: skip


@dataclass
class Service:
    """Gives the answers that are set, then 200; `hold`: waits for it first."""

    answers: list[PostResult] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)
    ways: list[Way] = field(default_factory=list)
    hold: asyncio.Event | None = None
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, post: Post, seconds: float, way: Way = DIRECT) -> PostResult:
        assert 0 < seconds <= 60
        self.posts.append(post)
        self.ways.append(way)
        self.asked.set()
        try:
            if self.hold is not None:
                await self.hold.wait()
        finally:
            self.left.set()
        return (
            self.answers.pop(0)
            if self.answers
            else PostResult(200, "status 200", content=b'{"ok":true,"code":0}')
        )


async def send(service: Sender, address: str, seconds: float = 60.0, way: Way = DIRECT) -> PostResult:
    sender = AppriseSender(service)
    target = ProviderTarget(FlagProviderSpec(type="apprise"), address, namespace="shop")
    try:
        return await sender.send(post_of(SAID, target), seconds, way)
    finally:
        sender.close()


@pytest.mark.parametrize(("address", "asked", "words"), [(name, *row) for name, row in ASKED.items()])
async def test_each_service_is_asked_at_its_own_host(address: str, asked: str, words: str) -> None:
    service, way = Service(), Way(proxy="http://proxy.example.com:3128")
    assert (await send(service, address, way=way)).status == 200
    (post,) = service.posts
    assert (post.method, post.url) == ("POST", f"https://{asked}")
    assert words in post.body.decode()
    assert "FlagSet" in post.body.decode()
    assert post.headers["Idempotency-Key"] == "k" * 64
    assert service.ways == [way]


def test_all_services_are_asked_here() -> None:
    assert {each.partition("://")[0] for each in ASKED} | {"wxteams"} == services.SERVICES.keys()


async def test_the_message_is_the_whole_text() -> None:
    service = Service()
    await send(service, "lark://t0k-en")
    text = json.loads(service.posts[0].body)["content"]["text"]
    assert (
        text
        == "FlagSet/flags.shop\n1 changed: <b>banner</b>\n\n~ banner: plain → christmas\n\nReason: Applied"
    )


async def test_a_topic_is_published_to_by_its_name_and_signed() -> None:
    service = Service([PostResult(200, "status 200", content=each.encode()) for each in (CREATED, PUBLISHED)])
    assert (await send(service, TOPIC)).status == 200
    created, published = (parse_qs(each.body.decode()) for each in service.posts)
    assert (created["Action"], created["Name"]) == (["CreateTopic"], ["flags"])
    assert (published["TopicArn"], published["Subject"]) == ([ARN], ["FlagSet/flags.shop"])
    for each in service.posts:
        assert each.headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIA1/")


@pytest.mark.parametrize(
    ("address", "answer"),
    [
        (BOT, PostResult(429, "status 429", 30.0)),
        (BOT, PostResult(503, "status 503")),
        (BOT, PostResult(0, "api.telegram.org: connection refused")),
        (BOT, PostResult(400, "status 400: chat not found")),
        (TOPIC, PostResult(403, "status 403: SignatureDoesNotMatch")),
    ],
)
async def test_what_the_service_answered_decides_about_the_next_try(address: str, answer: PostResult) -> None:
    assert await send(Service([answer]), address) == answer


async def test_an_answer_that_the_library_does_not_understand_is_a_refusal() -> None:
    found = await send(Service([PostResult(200, "status 200: x", content=b"x")]), TOPIC)
    assert found == PostResult(502, "the service refused it: status 200: x")


async def test_a_service_that_hangs_is_waited_for_as_long_as_the_provider_says_and_left() -> None:
    await send(Service(), TOPIC)  # imports the library, which may take longer
    service = Service(hold=asyncio.Event())
    assert await send(service, TOPIC, 0.5) == PostResult(0, "no answer within 0.5 s")
    async with asyncio.timeout(60):
        await service.left.wait()
    assert len(service.posts) == 1


async def test_services_that_hang_delay_no_message_of_another_namespace() -> None:
    service = Service(hold=asyncio.Event())
    sender = AppriseSender(service)
    post = post_of(SAID, ProviderTarget(FlagProviderSpec(type="apprise"), BOT, namespace="shop"))
    ways = [*[Way(namespace="greedy")] * 100, Way(namespace="shop")]
    tasks = [asyncio.create_task(sender.send(post, 60.0, way)) for way in ways]
    async with asyncio.timeout(60):
        while Way(namespace="shop") not in service.ways:
            await service.asked.wait()
            service.asked.clear()
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    sender.close()


def test_the_library_is_imported_only_with_such_a_provider() -> None:
    words = "import sys, controller.app.notifications; print('apprise' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


async def test_no_other_host_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    (form,) = services.SERVICES["lark"]
    monkeypatch.setitem(services.SERVICES, "lark", (replace(form, host="lark.example.com"),))
    service = Service()
    assert await send(service, "lark://t0k-en") == PostResult(0, "apprise sent no request")
    assert service.posts == []


async def test_an_address_that_is_not_allowed_is_not_tried_again() -> None:
    answer = await send(Service(), "json://10.0.0.1/hook")
    assert answer.status == 400
    assert "the address cannot be used: json:// is none of the services" in answer.text


async def test_no_token_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(1, "apprise")
    for answer in (PostResult(200, "status 200"), PostResult(400, "status 400"), PostResult(0, "no answer")):
        await send(Service([answer]), BOT)
    assert "t0k" not in caplog.text


@contextlib.asynccontextmanager
async def telegram(authority: trustme.CA) -> AsyncIterator[tuple[str, list[str]]]:
    """(the URL of a proxy that leads to it, what it was asked) of a server with a certificate of its name."""
    asked: list[str] = []
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("api.telegram.org").configure_cert(context)

    async def take(request: web.Request) -> web.Response:
        asked.append(
            f"{request.method} https://{request.host}{request.path} {(await request.json())['chat_id']}"
        )
        return web.json_response({"ok": True})

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Everybody who asks for a tunnel is connected with the server."""
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.split(b"\r\n")[0].decode())
        there = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))

    async with web_server(web.post("/{path:.*}", take), tls=context) as port:
        proxy = await asyncio.start_server(lead, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}", asked
        finally:
            proxy.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while some := await reader.read(65_536):
            writer.write(some)
            await writer.drain()
    writer.close()


async def test_a_message_arrives_through_a_proxy_and_by_an_authority_of_ones_own() -> None:
    authority = trustme.CA()
    async with telegram(authority) as (proxy, asked):
        poster = Poster(lambda: NOW, allow_local=True)
        try:
            way = Way(Tls(authority.cert_pem.bytes().decode()), proxy)
            assert await send(poster, BOT, way=way) == PostResult(200, "status 200")
        finally:
            await poster.close()
    assert asked == [
        "CONNECT api.telegram.org:443 HTTP/1.1",
        "POST https://api.telegram.org/bot123:t0k-en/sendMessage -1001",
    ]
