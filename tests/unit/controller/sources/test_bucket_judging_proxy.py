"""Our proxy admits clients that know its password, to hosts that are not denied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import pytest
from yarl import URL

from controller.runtime.hosts import Hosts
from controller.sources.bucket_factory import JudgingProxy
from tests.s3 import s3

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path


def answer_not_found(exchange: BaseHTTPRequestHandler) -> bool:
    exchange.send_error(404)
    return True


@pytest.mark.parametrize(
    ("word", "denied", "plain_http", "status"),
    [
        (None, (), True, 404),
        ("guessed", (), True, 403),
        (None, ("127.0.0.0/8",), True, 403),
        (None, (), False, 403),
    ],
)
async def test_a_request_is_let_through_or_refused(
    tmp_path: Path, word: str | None, denied: tuple[str, ...], plain_http: bool, status: int
) -> None:
    proxy = JudgingProxy(Hosts((), denied, plain_http=plain_http))
    by = URL(await proxy.url())
    by = by if word is None else by.with_password(word)
    with s3(tmp_path) as store:
        store.instead = answer_not_found
        async with aiohttp.ClientSession() as session, session.get(f"{store.url}/a", proxy=by) as answer:
            assert answer.status == status
    await proxy.close()
