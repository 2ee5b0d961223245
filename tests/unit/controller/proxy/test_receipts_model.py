"""Any interleaving of joins, reports, goodbyes, silence, moves between proxies, deaths of proxies and of Pods
ends with the right count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controller.api.flagreceipt import FlagReceiptStatus
from controller.delivery.fleet_members import Count, count
from controller.proxy.members import (
    FORGOTTEN,
    PAUSE,
    SILENT,
    MemberIdentity,
    MemberReport,
    Membership,
    receipt_status,
)
from controller.proxy.receipts import LATEST

PROXIES = 3
MEMBERS = 5
BEAT = 5


@dataclass
class Process:
    """A process as it truly is."""

    who: MemberIdentity
    proxy: int
    peer: str
    digest: str
    frozen: bool = False
    reported: float = 0.0
    """When it reported last."""
    pause: float = PAUSE
    """The seconds that it was told then."""


@dataclass
class Truth:
    """What is there."""

    digest: str = "d0"
    gone: set[str] = field(default_factory=set)

    def has_ended(self, uid: str) -> bool:
        return uid in self.gone


def silent_after(pause: float) -> float:
    return max(SILENT, 1.5 * pause)


class Receipts(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.truth = Truth()
        self.clock = 1000.0
        self.numbers = 0
        self.settling = 0.0
        """Until then a member may be counted at a proxy that it left, or nowhere."""
        self.pause = PAUSE
        self.processes: list[Process] = []
        self.proxies = [self.proxy() for _ in range(PROXIES)]

    def proxy(self) -> Membership:
        made = Membership(self.truth)
        made.set_expected(self.truth.digest, self.clock, self.clock)
        return made

    def connect(self, process: Process, proxy: int) -> None:
        self.numbers += 1
        process.proxy, process.peer = proxy, f"10.0.0.1:{self.numbers}"
        self.proxies[proxy].stream_opened(process.peer)

    def disturb(self) -> None:
        self.settling = self.clock + silent_after(LATEST) + LATEST

    def send(self, process: Process) -> None:
        report = MemberReport(process.digest, process.digest, self.clock, True)
        self.proxies[process.proxy].record_report(process.who, report, process.peer, self.clock, self.pause)
        process.reported, process.pause = self.clock, self.pause

    def tick(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.clock += 1
            for proxy in self.proxies:
                proxy.tick(1.0)
            for process in self.processes:
                if not process.frozen and self.clock - process.reported >= process.pause:
                    self.send(process)

    @precondition(lambda self: len(self.processes) < MEMBERS)
    @rule(proxy=st.integers(0, PROXIES - 1), in_pod=st.booleans(), newest=st.booleans())
    def join(self, proxy: int, in_pod: bool, newest: bool) -> None:
        self.numbers += 1
        name = f"m{self.numbers}"
        pod = name if in_pod else ""
        who = MemberIdentity("ns", pod, pod, name, verified=in_pod)
        process = Process(who, proxy, "", self.truth.digest if newest else "")
        self.connect(process, proxy)
        self.processes.append(process)
        self.send(process)

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, MEMBERS), newest=st.booleans())
    def serve(self, which: int, newest: bool) -> None:
        process = self.processes[which % len(self.processes)]
        if not process.frozen:
            process.digest = self.truth.digest if newest else "other"
            self.send(process)

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, MEMBERS), proxy=st.integers(0, PROXIES - 1))
    def move(self, which: int, proxy: int) -> None:
        process = self.processes[which % len(self.processes)]
        if not process.frozen:
            self.proxies[process.proxy].stream_ended(process.peer)
            self.connect(process, proxy)
            self.send(process)
            self.disturb()

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, MEMBERS), proxy=st.integers(0, PROXIES - 1))
    def forge(self, which: int, proxy: int) -> None:
        """A claim, without a stream, to be a pod whose token is verified, and its goodbye."""
        process = self.processes[which % len(self.processes)]
        if process.who.verified and process.proxy == proxy and not process.frozen:
            who = MemberIdentity("ns", process.who.pod, process.who.pod_uid, "forger")
            self.proxies[proxy].record_report(who, MemberReport("forged"), "10.9.9.9:1", self.clock)
            self.proxies[proxy].remove(who)

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, MEMBERS))
    def freeze(self, which: int) -> None:
        self.processes[which % len(self.processes)].frozen = True

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, MEMBERS), goodbye=st.booleans())
    def end(self, which: int, goodbye: bool) -> None:
        """A process ends, with a goodbye or killed."""
        process = self.processes.pop(which % len(self.processes))
        if goodbye and not process.frozen:
            self.proxies[process.proxy].remove(process.who)
        else:
            self.disturb()
        self.proxies[process.proxy].stream_ended(process.peer)

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, MEMBERS))
    def delete_pod(self, which: int) -> None:
        process = self.processes[which % len(self.processes)]
        if process.who.pod_uid:
            self.processes.remove(process)
            self.truth.gone.add(process.who.pod_uid)
            for proxy in self.proxies:
                proxy.pod_gone(process.who.pod_uid)
            # A process that outlives its Pod goes on reporting for a while.
            self.send(process)
            self.proxies[process.proxy].stream_ended(process.peer)

    @rule(proxy=st.integers(0, PROXIES - 1))
    def kill_proxy(self, proxy: int) -> None:
        self.proxies[proxy] = self.proxy()
        for process in self.processes:
            if process.proxy == proxy:
                process.frozen = False
                self.connect(process, (proxy + 1) % PROXIES)
                self.send(process)

    @rule(seconds=st.sampled_from([1, BEAT, int(SILENT) + 1, int(FORGOTTEN) + 1]))
    def wait(self, seconds: int) -> None:
        self.tick(seconds)

    @rule(pause=st.sampled_from([PAUSE, 10.0, 20.0, LATEST]))
    def crowd(self, pause: float) -> None:
        """The number of members changes, and so what they are told from now on."""
        self.pause = pause

    @rule()
    def change(self) -> None:
        self.numbers += 1
        self.truth.digest = f"d{self.numbers}"
        for proxy in self.proxies:
            proxy.set_expected(self.truth.digest, self.clock, self.clock)

    def sum_up(self) -> Count:
        statuses = [receipt_status(proxy).model_dump(by_alias=True) for proxy in self.proxies]
        return count([FlagReceiptStatus.model_validate(status) for status in statuses], self.truth.digest)

    @invariant()
    def nobody_is_served_what_was_not_reported(self) -> None:
        summed = self.sum_up()
        assert 0 <= summed.served <= summed.total
        assert len(summed.laggards) == summed.lagging

    @invariant()
    def the_count_is_right_once_all_streams_of_the_past_ended(self) -> None:
        if self.clock <= self.settling:
            return
        there = [process for process in self.processes if self.clock - process.reported < FORGOTTEN]
        silent = {
            process.who.name
            for process in there
            if self.clock - process.reported >= silent_after(process.pause)
        }
        wrong = silent | {process.who.name for process in there if process.digest != self.truth.digest}
        summed = self.sum_up()
        assert (summed.served, summed.total) == (len(there) - len(wrong), len(there))
        assert {laggard.name for laggard in summed.laggards} == wrong


Receipts.TestCase.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
TestReceipts: Any = Receipts.TestCase
