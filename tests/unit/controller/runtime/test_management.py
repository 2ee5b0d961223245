from __future__ import annotations

import threading
from contextlib import closing

from controller.runtime.process import routes
from evaluator.http.messages import Request, Streamed
from evaluator.http.offload import Offload
from tests.worlds.evaluator import body_of


async def test_a_scrape_of_many_objects_is_made_beside_the_loop() -> None:
    threads: list[int] = []

    def metrics() -> bytes:
        threads.append(threading.get_ident())
        return b"flagstaff_leader 1\n"

    with closing(Offload()) as offload:
        scrape = routes(lambda: {"ready": True}, metrics, offload).http["GET", "/metrics"]
        answer = scrape(Request("GET", "/metrics", "", (), b"", ""))
        assert isinstance(answer, Streamed)
        assert await body_of(answer) == b"flagstaff_leader 1\n"
    assert threads != [threading.get_ident()]
