"""Any interleaving of writes, deletions, restarts of the watch and streams that come, stall, read and go,
against what must hold of each stream.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from evaluator.http.messages import Code
from tests.worlds.proxy import FEATURE_FLAG, Scene, flags, large, sent_values

if TYPE_CHECKING:
    from tests.worlds.evaluator import FakeStream

KIND = "FeatureFlagConfiguration"
SELECTORS = st.sampled_from(["shop/web", "flagSetId=id"])


class Subscribers(RuleBasedStateMachine):
    """Every stream that is open and reads has the newest good value; one that was sent a value that is no
    more has ended.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.number = 0
        self.there: dict[str, str] = {}
        """The last good value by kind, of objects that are there."""
        self.streams: list[FakeStream] = []
        """Never fewer: when a server ends one depends on a thread, and which rules may run must not."""
        self.cut: set[int] = set()

        async def make() -> Scene:
            return Scene()

        self.scene = self.loop.run_until_complete(make())

    def act(self, action: Any, *arguments: Any) -> Any:
        async def inside() -> Any:
            result = action(*arguments)
            for _ in range(3):
                await asyncio.sleep(0)
            return result

        return self.loop.run_until_complete(inside())

    @rule(kind=st.sampled_from([KIND, FEATURE_FLAG]), make=st.sampled_from([flags, large]))
    def write(self, kind: str, make: Any) -> None:
        self.number += 1
        document = make(str(self.number)) | {"metadata": {"flagSetId": "id"}}
        self.there[kind] = str(self.number)
        self.act(self.scene.learn, "shop/web", document, kind)

    @rule(kind=st.sampled_from([KIND, FEATURE_FLAG]))
    def delete(self, kind: str) -> None:
        self.there.pop(kind, None)
        self.act(self.scene.forget, "shop/web", kind)

    @rule(selector=SELECTORS, writable=st.booleans())
    def subscribe(self, selector: str, writable: bool) -> None:
        open_stream = self.scene.open
        self.streams.append(self.act(lambda: open_stream(selector, writable=writable)))

    @precondition(lambda self: self.streams)
    @rule(which=st.integers(0, 20), what=st.sampled_from(["stall", "read", "cut"]))
    def disturb(self, which: int, what: str) -> None:
        number = which % len(self.streams)
        stream = self.streams[number]
        if stream.closed or number in self.cut:
            return
        if what == "stall":
            stream.writable = False
        elif what == "read":
            self.act(stream.read)
        else:
            self.act(stream.hang_up)
            self.cut.add(number)

    def teardown(self) -> None:
        left = [stream for number, stream in enumerate(self.streams) if number not in self.cut]
        for stream in left:
            if not stream.closed:
                self.act(stream.read)
        self.loop.run_until_complete(self.scene.rest())
        newest = self.there.get(KIND) or self.there.get(FEATURE_FLAG)
        for stream in left:
            received = sent_values(stream)
            if stream.ended is not None:
                assert stream.ended[0] is Code.NOT_FOUND
                assert received
            else:
                assert received[-1:] == ([newest] if newest else [])
        assert self.scene.proxy.hub.streams == sum(not each.closed for each in left)
        self.loop.close()


Subscribers.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestSubscribers = Subscribers.TestCase
