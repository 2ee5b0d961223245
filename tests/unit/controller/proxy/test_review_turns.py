"""Reviews of one reader that the API server does not answer: others are reviewed meanwhile."""

from __future__ import annotations

import asyncio

from controller.proxy.access import REVIEWS, AccessReviews
from controller.proxy.users import User
from tests.waiting import until


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
