"""Who sends what."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from controller.notifications.forms.posts import DIRECT, Post, Way
from controller.notifications.sending.posting import PostResult, Senders


@dataclass
class Named:
    name: str

    async def send(self, post: Post, seconds: float, way: Way = DIRECT) -> PostResult:
        return PostResult(200, f"{self.name} {post.url} {seconds:g} {way.proxy}")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://x.example.com", "http"), ("HTTP://x.example.com", "http"), ("smtp://x.example.com", "mail"),
        ("smtps://x.example.com", "mail"), ("tgram://1:t/2", "apprise"),
    ],
)  # fmt: skip
async def test_the_scheme_decides_which_sender_is_used(url: str, name: str) -> None:
    senders = Senders(Named("http"), Named("mail"), Named("apprise"))
    answer = await senders.send(Post(url, b"", {}), 7.0, Way(proxy="p"))
    assert answer.text == f"{name} {url} 7 p"
