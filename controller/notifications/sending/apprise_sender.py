"""Sends with the library apprise, which is imported for the first provider that needs it, in threads.

It builds the requests and reads the answers. Our own client (posting.py) sends them, with its rules for
addresses, certificates, proxies and time. The library requests follows redirects and environment proxies.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import json
import logging
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import requests

from controller.api.parsing.addresses import AddressRefused
from controller.notifications.forms.posts import DIRECT, Post
from controller.notifications.forms.services import known
from controller.notifications.sending.posting import PostResult, why
from controller.notifications.sending.threads import Threads

if TYPE_CHECKING:
    from concurrent.futures import Future

    from controller.notifications.forms.posts import Way
    from controller.notifications.sending.posting import Sender


class AppriseSender:
    """Belongs to one event loop."""

    def __init__(self, sender: Sender) -> None:
        """`sender` sends the requests that apprise builds."""
        self._sender = sender
        self._threads = Threads("apprise")

    def close(self) -> None:
        """Refuse further sends."""
        self._threads.close()

    async def send(self, post: Post, seconds: float, way: Way = DIRECT) -> PostResult:
        """Notify the URL's service within `seconds`, not counting the wait for a free thread."""
        line = _Line(self._sender, asyncio.get_running_loop(), post, way)
        try:
            return await self._threads.run(way.namespace, seconds, partial(_notify, line), line.hang_up)
        except (TimeoutError, AddressRefused) as error:
            # 400: a refusal, which is not retried.
            return PostResult(0 if isinstance(error, TimeoutError) else 400, why(error, seconds))
        except Exception as error:  # noqa: BLE001 - errors of the library, such as in parsing answers
            # The error's text may contain the address.
            return line.outcome(taken=False, otherwise=f"apprise failed: {type(error).__name__}")


@dataclass(slots=True)
class _Line:
    """Sends one message's requests: a thread passes them to the event loop."""

    sender: Sender
    loop: asyncio.AbstractEventLoop
    post: Post
    way: Way
    end: float = 0.0
    """Deadline in the loop's time."""
    answers: list[PostResult] = field(default_factory=list)
    sending: Future[PostResult] | None = None
    over: Event = field(default_factory=Event)
    """Set when no caller waits any more."""

    def hang_up(self) -> None:
        """Send no further request, and abandon a running one."""
        self.over.set()
        if self.sending is not None:
            self.sending.cancel()

    def request(self, method: str, url: str, options: dict[str, Any]) -> requests.Response:
        """Return the answer to a request of apprise. Raises the exceptions of `requests`."""
        given = {
            name: options[name] for name in ("headers", "data", "json", "params", "auth") if name in options
        }
        asked = requests.Request(method, url, **given).prepare()
        parts = urlsplit(asked.url or "")
        if parts.scheme != "https" or parts.netloc != known(self.post.url).host:
            raise requests.exceptions.InvalidURL("it is not the service's host")
        if self.over.is_set():
            raise requests.exceptions.Timeout
        body = asked.body.encode() if isinstance(asked.body, str) else asked.body or b""
        headers = {name: text for name, text in asked.headers.items() if name.lower() != "content-length"}
        headers |= {"Accept-Encoding": "identity", "Idempotency-Key": self.post.headers["Idempotency-Key"]}
        own = Post(asked.url or "", body, headers, asked.method or method)
        sending = self.sender.send(own, max(0.001, self.end - self.loop.time()), self.way)
        self.sending = asyncio.run_coroutine_threadsafe(sending, self.loop)
        if self.over.is_set():
            # It was closed meanwhile.
            self.sending.cancel()
        answer = self.sending.result()
        self.answers.append(answer)
        if not answer.status or answer.status == 429 or answer.status >= 500:
            # This ends the try: the deliverer schedules the next one.
            raise requests.exceptions.ConnectionError(answer.text)
        return _response(asked.url or "", answer)

    def outcome(self, *, taken: bool, otherwise: str = "apprise sent no request") -> PostResult:
        """Return the result of all requests."""
        if taken:
            return PostResult(200, "status 200")
        for answer in reversed(self.answers):
            if not 200 <= answer.status < 300:
                return answer
        if self.answers:
            return PostResult(502, f"the service refused it: {self.answers[-1].text}")
        return PostResult(0, otherwise)


def _response(url: str, answer: PostResult) -> requests.Response:
    response = requests.Response()
    response.url, response.status_code = url, answer.status
    response._content = answer.content
    response.encoding = "utf-8"
    return response


_CURRENT: Final[contextvars.ContextVar[_Line]] = contextvars.ContextVar("line")


class _Requests:
    """Replacement of the library `requests` in a service's module."""

    def __getattr__(self, name: str) -> Any:
        return getattr(requests, name)

    @staticmethod
    def post(url: str, data: Any = None, **options: Any) -> requests.Response:
        return _CURRENT.get().request("POST", url, {"data": data, **options})

    @staticmethod
    def get(url: str, params: Any = None, **options: Any) -> requests.Response:
        return _CURRENT.get().request("GET", url, {"params": params, **options})


def built(address: str) -> Any:
    """Return the apprise object of an address. Raises AddressRefused. Blocks: it may import apprise."""
    service = known(address).service
    apprise = importlib.import_module("apprise")
    module = importlib.import_module(f"apprise.plugins.{service.module}")
    # It logs URLs and whole requests.
    logging.getLogger("apprise").disabled = True
    module.requests = _Requests()  # type: ignore[attr-defined]
    kind = getattr(module, service.class_)
    # Without its own timeout it starts no other thread.
    asset = apprise.AppriseAsset(
        app_id="Flagstaff", app_desc="Flagstaff", app_url="", image_url_mask="", image_url_logo="",
        image_path_mask="", service_timeout=0, allow_templates=False,
    )  # fmt: skip
    try:
        found = kind(**kind.parse_url(address), asset=asset)
    except Exception as error:  # noqa: BLE001 - its classes raise any exception
        # The error's text repeats the faulty part, which may be the token.
        raise AddressRefused(f"apprise does not take it ({type(error).__name__})") from None
    if len(found) != 1:
        raise AddressRefused("it must name one recipient")
    # One message is one request: disable its sleep between requests.
    found.overflow_mode, found.request_rate_per_sec = apprise.OverflowMode.TRUNCATE, 0
    return apprise.Apprise([found], asset=asset)


def _notify(line: _Line, seconds: float) -> PostResult:
    """Notify the service. Blocks until it answers."""
    line.end = line.loop.time() + seconds
    token = _CURRENT.set(line)
    try:
        said = json.loads(line.post.body)
        taken = built(line.post.url).notify(
            said["body"], title=said["title"], notify_type=said["type"], body_format="text"
        )
    finally:
        _CURRENT.reset(token)
    return line.outcome(taken=bool(taken))
