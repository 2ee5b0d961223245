"""What is reported to a server about what is served, and when."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from evaluator.flags.merge import parse
from evaluator.flags.model import ComposedPart, Flag, FlagSet, State
from evaluator.http.limits import Limits
from evaluator.http.listener import Listener
from evaluator.http.messages import Code, RpcError
from evaluator.http.routes import Routes, merge
from evaluator.http.scheduler import FairQueue
from evaluator.receipts.reporter import Reporter, StoreReceipts
from evaluator.store.store import Content, Report, Store
from evaluator.sync.config import Provider, SourceConfig
from evaluator.sync.follower import Accepted, Followers, accept
from evaluator.sync.lastgood import LastGood, LastGoodWriter
from evaluator.sync.opening import open_sources
from evaluator.sync.schedule import RetryPauses
from evaluator.sync.source import Delivery
from evaluator.wire.delivery import LEAVE, MARK, REPORT, AskFailed, MemberText, NotOffered
from evaluator.wire.delivery_pb2 import LeaveRequest, LeaveResponse, ReportRequest, ReportResponse
from evaluator.wire.hub import Hub
from evaluator.wire.servicer import SyncService
from tests.unit.evaluator.wire.test_servicer import FakeBackend
from tests.waiting import run_beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable
    from pathlib import Path

    from evaluator.http.messages import Call

MEMBER = MemberText("i", "shop", "checkout-1", "uid-1", "node-1", "0.1.0")


def document(variant: str, digest: str = "sha256:whole", **more: Any) -> bytes:
    flag = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": variant}
    metadata = {"flagstaff.dev/digest": digest, "flagstaff.dev/revision": f"main@sha1:{variant}"}
    return json.dumps({"flags": {"a": flag, **more}, "metadata": metadata}).encode()


def flag_set(variant: str, digest: str = "sha256:whole") -> FlagSet:
    return parse(document(variant, digest), file="flags.json").flag_set


@dataclass
class Server:
    """Answers as a test says, and keeps the reports."""

    reports: list[ReportRequest] = field(default_factory=list)
    left: list[LeaveRequest] = field(default_factory=list)
    failure: AskFailed | None = None
    next_ms: int = 0
    reported: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, path: str, request: bytes) -> bytes:
        if path == LEAVE:
            self.left.append(LeaveRequest.FromString(request))
            return b""
        self.reports.append(ReportRequest.FromString(request))
        self.reported.set()
        if self.failure is not None:
            raise self.failure
        return ReportResponse(next_ms=self.next_ms).SerializeToString()

    async def until(self, enough: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not enough():
                self.reported.clear()
                await self.reported.wait()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def reporter() -> Reporter:
    return StoreReceipts(MEMBER, random=lambda: 0.0).of("proxy", "shop/flags")


async def test_an_evaluator_without_flags_reports_so_at_once(reporter: Reporter, server: Server) -> None:
    async with run_beside(reporter.run(server)):
        await server.until(lambda: bool(server.reports))
    report = server.reports[0]
    assert (report.digest, report.selector, report.served_for_ms) == ("", "shop/flags", 0)
    assert MemberText.of(report.member) == MEMBER


@pytest.mark.parametrize(("failures", "logged"), [(1, []), (4, ["receipts are not accepted: down"])])
async def test_refused_receipts_are_logged_when_the_next_is_refused_too(
    server: Server, caplog: pytest.LogCaptureFixture, failures: int, logged: list[str]
) -> None:
    reporter = StoreReceipts(MEMBER, random=lambda: 0.0, again=0.01).of("proxy", "shop/flags")
    server.failure = AskFailed("down")
    async with run_beside(reporter.run(server)):
        await server.until(lambda: len(server.reports) >= failures)
        server.failure = None
        await server.until(lambda: len(server.reports) > failures)
    assert caplog.messages == logged


@pytest.mark.parametrize("failure", [None, AskFailed("down")], ids=["taken", "not taken"])
async def test_a_receipt_that_was_taken_says_that_the_server_was_there(
    reporter: Reporter, server: Server, failure: AskFailed | None
) -> None:
    server.failure = failure
    assert not reporter.was_taken_within(60.0)
    async with run_beside(reporter.run(server)):
        await server.until(lambda: bool(server.reports))
        await asyncio.sleep(0)
        assert reporter.was_taken_within(60.0) is (failure is None)


async def test_a_change_is_reported_at_once(reporter: Reporter, server: Server) -> None:
    async with run_beside(reporter.run(server)):
        await server.until(lambda: bool(server.reports))
        reporter.serve(flag_set("on"), "sha256:own", False)
        await server.until(lambda: server.reports[-1].digest == "sha256:whole")
    assert server.reports[-1].revision == "main@sha1:on"


async def test_a_report_is_repeated_as_often_as_the_server_says(reporter: Reporter, server: Server) -> None:
    server.next_ms = 1
    async with run_beside(reporter.run(server)):
        await server.until(lambda: len(server.reports) >= 2)


async def test_one_that_fails_is_sent_again(reporter: Reporter, server: Server) -> None:
    server.failure = AskFailed("away")
    async with run_beside(reporter.run(server)):
        await server.until(lambda: len(server.reports) >= 2)


async def test_a_server_without_the_service_is_asked_once_a_connection(
    reporter: Reporter, server: Server
) -> None:
    server.failure = NotOffered("no")
    await asyncio.wait_for(reporter.run(server), 5)
    await asyncio.wait_for(reporter.run(server), 5)
    await reporter.leave(server)
    assert (len(server.reports), server.left) == (2, [])


async def test_a_goodbye_names_the_member_and_its_selector(reporter: Reporter, server: Server) -> None:
    async with run_beside(reporter.run(server)):
        await server.until(lambda: bool(server.reports))
    await reporter.leave(server)
    assert [(MemberText.of(each.member), each.selector) for each in server.left] == [(MEMBER, "shop/flags")]


async def test_a_goodbye_that_is_not_accepted_delays_nothing(reporter: Reporter) -> None:
    async def silent(path: str, _: bytes) -> bytes:
        if path == LEAVE:
            raise AskFailed("away")
        return b""

    task = asyncio.create_task(reporter.run(silent))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await reporter.leave(silent)


@pytest.mark.parametrize(
    ("sets", "from_disk", "replaced"),
    [
        pytest.param(["on"], False, False, id="the first"),
        pytest.param(["on", "off"], False, True, id="the second"),
        pytest.param(["on", "off"], True, False, id="the first after last good"),
        pytest.param(["on", "off", "on"], True, True, id="the second after last good"),
    ],
)
async def test_a_report_says_whether_the_set_replaced_another_that_was_delivered(
    reporter: Reporter, sets: list[str], from_disk: bool, replaced: bool
) -> None:
    for number, each in enumerate(sets):
        reporter.serve(flag_set(each, f"sha256:{number}"), "", from_disk)
    assert reporter.served.replaced is replaced


async def test_a_revision_without_a_change_has_been_served_since_the_change(reporter: Reporter) -> None:
    reporter.serve(flag_set("on"), "", False)
    since = reporter.served.since
    reporter.serve(flag_set("off"), "", False)
    assert (reporter.served.since, reporter.served.revision) == (since, "main@sha1:off")


BAD = {"state": "ENABLED", "variants": 5, "defaultVariant": "on"}


@pytest.mark.parametrize("known", [True, False], ids=["held", "left out"])
async def test_a_set_that_is_not_served_whole_does_not_count_as_served(
    reporter: Reporter, known: bool
) -> None:
    good = {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}
    first = accept(Delivery((("flags.json", document("on", b=good)),)), None)
    assert isinstance(first, Accepted)
    delivery = Delivery((("flags.json", document("on", "sha256:next", b=BAD)),))
    judged = accept(delivery, first.flag_set if known else None)
    assert isinstance(judged, Accepted)
    reporter.serve(judged.flag_set, judged.digest, False)
    assert reporter.served.digest == judged.digest != "sha256:next"


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "in part"])
async def test_what_is_served_of_each_set_of_a_composition_is_reported(
    reporter: Reporter, server: Server, whole: bool
) -> None:
    metadata = {"flagstaff.dev/digest": "sha256:all"} if whole else {}
    parts = (ComposedPart("namespace", "FlagSet/kills", "sha256:kills", "r1"), ComposedPart("workload"))
    reporter.serve(FlagSet(metadata=metadata, parts=parts), "sha256:own", False)
    async with run_beside(reporter.run(server)):
        await server.until(lambda: bool(server.reports))
    [served] = server.reports[-1].sets
    assert (served.order, served.flag_set) == ("namespace", "FlagSet/kills")
    assert (served.digest, served.revision) == (("sha256:kills", "r1") if whole else ("", ""))


async def test_an_override_that_another_source_hides_is_reported_with_that_source(server: Server) -> None:
    store = Store(sources=["kills", "own", "file"])
    receipts = StoreReceipts(MEMBER, random=lambda: 0.0)
    reporter = receipts.of("kills", "flagstaff.dev/orders=shop")
    receipts.of("own", "shop/own")
    receipts.follow(store)
    marks = {"flagstaff.dev/override": "off", "flagstaff.dev/flag-set": "FlagSet/kills"}
    overridden = {key: Flag(key, State.DISABLED, {}, metadata=marks) for key in ("a", "b", "c")}
    plain = {key: Flag(key, State.ENABLED, {"on": 1}, "on") for key in ("a", "b")}
    async with run_beside(reporter.run(server)):
        store.apply(Report("kills", 1.0, Content(FlagSet(overridden))), now=1.0)
        store.apply(Report("file", 1.0, Content(FlagSet({"b": plain["b"]}))), now=1.0)
        store.apply(Report("own", 1.0, Content(FlagSet({"a": plain["a"]}))), now=1.0)
        await server.until(lambda: bool(server.reports) and len(server.reports[-1].hidden) == 2)
    assert [(flag.key, flag.by, flag.flag_set) for flag in server.reports[-1].hidden] == [
        ("a", "shop/own", "FlagSet/kills"),
        ("b", "", "FlagSet/kills"),
    ]


@dataclass
class Proxy:
    """A server with both services, on a port."""

    offers: bool = True
    headers: list[Call] = field(default_factory=list)
    reports: list[ReportRequest] = field(default_factory=list)
    goodbyes: list[LeaveRequest] = field(default_factory=list)
    backend: FakeBackend = field(default_factory=FakeBackend)
    reported: asyncio.Event = field(default_factory=asyncio.Event)

    def report(self, call: Call, message: bytes) -> bytes:
        self.headers.append(call)
        if call.path == LEAVE:
            self.goodbyes.append(LeaveRequest.FromString(message))
            return LeaveResponse().SerializeToString()
        self.reports.append(ReportRequest.FromString(message))
        self.reported.set()
        if len(self.reports) == 1:
            raise RpcError(Code.UNAVAILABLE, "not known yet")
        return ReportResponse(next_ms=5000).SerializeToString()

    def begin(self, call: Call, topic: Hashable, *, lasting: bool) -> object:
        self.headers.append(call)
        return topic, lasting

    def end(self, visit: object) -> None:
        """Nothing is counted."""

    async def until(self, digest: str) -> None:
        async with asyncio.timeout(60):
            while not self.reports or self.reports[-1].digest != digest:
                self.reported.clear()
                await self.reported.wait()


@contextlib.asynccontextmanager
async def run_server(proxy: Proxy) -> AsyncIterator[int]:
    """The proxy on a port."""
    loop = asyncio.get_running_loop()
    service = SyncService(proxy.backend, Hub(FairQueue()), loop, observer=proxy)
    offered = Routes(unary={REPORT: proxy.report, LEAVE: proxy.report} if proxy.offers else {})
    listener = Listener(merge(service.routes(), offered), Limits(), name="sync")
    try:
        yield await listener.start("127.0.0.1", 0)
    finally:
        service.close()
        await listener.drain(1)


@contextlib.asynccontextmanager
async def evaluator(proxy: Proxy, token: str) -> AsyncIterator[Store]:
    """Follows the proxy, as the process does."""
    async with run_server(proxy) as port, run_follower(port, token) as store:
        yield store


@contextlib.asynccontextmanager
async def run_follower(port: int, token: str) -> AsyncIterator[Store]:
    config = SourceConfig(f"127.0.0.1:{port}", Provider.GRPC, selector="shop/flags", bearer_token_file=token)
    receipts = StoreReceipts(MEMBER, random=lambda: 0.0)
    sources = open_sources([config], clock=lambda: 1000.0, companion=receipts.of)
    store = Store(sources=[source.name for source in sources])
    receipts.follow(store)
    async with run_beside(Followers(sources, store, clock=lambda: 1000.0).run()):
        yield store


async def test_receipts_and_a_goodbye_go_over_the_connection_of_the_stream(tmp_path: Any) -> None:
    proxy, token = Proxy(), tmp_path / "token"
    token.write_text("first")
    proxy.backend.serve("shop/flags", document("on"))
    async with evaluator(proxy, str(token)):
        await proxy.until("sha256:whole")
        token.write_text("second")
        proxy.backend.serve("shop/flags", document("off", "sha256:next"))
        await proxy.until("sha256:next")
    assert proxy.reports[-1].replaced
    assert proxy.goodbyes[0].member == proxy.reports[-1].member
    assert len({call.peer for call in proxy.headers}) == 1
    assert (MARK, "1") in next(call.headers for call in proxy.headers if call.path.endswith("SyncFlags"))
    said = dict(proxy.headers[-1].headers)["authorization"]
    assert said == "Bearer second"


async def test_a_server_without_receipts_is_followed_as_ever() -> None:
    proxy, revisions = Proxy(offers=False), asyncio.Queue[str | None]()
    proxy.backend.serve("shop/flags", document("on"))
    async with evaluator(proxy, "") as store, asyncio.timeout(60):
        store.subscribe(lambda snapshot: revisions.put_nowait(snapshot.revision))
        assert await revisions.get() == "main@sha1:on"
        proxy.backend.serve("shop/flags", document("off"))
        assert await revisions.get() == "main@sha1:off"


async def test_a_report_says_why_the_last_good_set_is_not_saved(
    reporter: Reporter, server: Server, tmp_path: Path
) -> None:
    keeper = LastGoodWriter(LastGood(tmp_path, "proxy"), "proxy", RetryPauses(lambda: 0.0))
    reporter.saving = keeper
    keeper.fault = "No space left on device"
    async with run_beside(reporter.run(server)):
        await server.until(lambda: bool(server.reports))
    assert server.reports[0].unsaved == "No space left on device"
