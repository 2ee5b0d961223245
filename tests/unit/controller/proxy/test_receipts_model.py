"""Any interleaving of joins, reports, goodbyes, silence, moves between proxies, deaths of proxies and of Pods
ends with the right count.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controller.api.receipt import FlagReceiptStatus
from controller.delivery.members import Count, count
from controller.proxy.receipts.members import FORGOTTEN, SILENT, Membership
from controller.proxy.receipts.standing import MemberIdentity, Report
from controller.proxy.receipts.status import receipt_status

PROXIES = 3
MEMBERS = 5


@dataclass
class Member:
    """A process as it truly is."""

    who: MemberIdentity
    proxy: int | None = None
    connected_at: int = 0
    digest: str = ""
    frozen: bool = False
    said: str = ""
    """The digest of its last report."""
    reported: float = 0.0
    """When that was."""
    left: float = 0.0
    set_back: bool = False
    """Its clock was, since it said goodbye."""


@dataclass
class Truth:
    """What is there."""

    digest: str = "d0"
    pods: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def exists(self, uid: str) -> bool:
        return uid in self.pods

    def ended(self, uid: str) -> bool:
        return uid in self.gone


class Receipts(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.truth = Truth()
        self.clock = 1000.0
        self.connections = 0
        self.numbers = 0
        self.members: list[Member] = []
        self.departed: list[Member] = []
        self.deleted: list[Member] = []
        self.killed = False
        self.proxies = [self.proxy() for _ in range(PROXIES)]

    def proxy(self) -> Membership:
        made = Membership(self.truth)
        made.deliver(self.truth.digest, self.clock, self.clock)
        return made

    def connect(self, member: Member, proxy: int) -> None:
        self.connections += 1
        member.proxy, member.connected_at, member.set_back = proxy, self.connections, False

    def forged(self, member: Member, proxy: int, *, goodbye: bool) -> None:
        """Somebody without a token says that it is this pod, on the newest of all connections."""
        who = replace(member.who, instance="forger", verified=False)
        self.proxies[proxy].hear(who, Report(2**60, "forged"), self.clock)
        if goodbye:
            self.proxies[proxy].leave(who, 2**60, self.clock)

    def send(self, member: Member) -> None:
        assert member.proxy is not None
        report = Report(member.connected_at, member.digest, member.digest, self.clock, True)
        self.proxies[member.proxy].hear(member.who, report, self.clock)
        member.said, member.reported = member.digest, self.clock

    def tick(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.clock += 1
            for proxy in self.proxies:
                proxy.tick(1.0)

    @rule(proxy=st.integers(0, PROXIES - 1), in_pod=st.booleans(), newest=st.booleans())
    def join(self, proxy: int, in_pod: bool, newest: bool) -> None:
        if len(self.members) >= MEMBERS:
            return
        self.numbers += 1
        name = f"m{self.numbers}"
        if in_pod:
            self.truth.pods.add(name)
        who = MemberIdentity("ns", name if in_pod else "", name if in_pod else "", name, verified=in_pod)
        member = Member(who, digest=self.truth.digest if newest else "")
        self.members.append(member)
        self.connect(member, proxy)
        self.send(member)

    @precondition(lambda self: self.members)
    @rule(which=st.integers(0, MEMBERS), newest=st.booleans())
    def serve(self, which: int, newest: bool) -> None:
        member = self.members[which % len(self.members)]
        if not member.frozen:
            member.digest = self.truth.digest if newest else "other"
            self.send(member)

    @precondition(lambda self: self.members)
    @rule(which=st.integers(0, MEMBERS), proxy=st.integers(0, PROXIES - 1))
    def move(self, which: int, proxy: int) -> None:
        member = self.members[which % len(self.members)]
        if not member.frozen:
            self.connect(member, proxy)
            self.send(member)

    @precondition(lambda self: self.members)
    @rule(which=st.integers(0, MEMBERS))
    def late(self, which: int) -> None:
        """A report from an earlier connection arrives after all that came since."""
        member = self.members[which % len(self.members)]
        assert member.proxy is not None
        known = {each.who.id for each in self.proxies[member.proxy].standings()}
        # None is under way for as long as it takes to be silent.
        if member.who.id in known and self.clock - member.reported < SILENT:
            report = Report(member.connected_at - 1, "stale", "", self.clock)
            self.proxies[member.proxy].hear(member.who, report, self.clock)

    @precondition(lambda self: self.members)
    @rule(which=st.integers(0, MEMBERS), proxy=st.integers(0, PROXIES - 1), goodbye=st.booleans())
    def forge(self, which: int, proxy: int, goodbye: bool) -> None:
        """A claim to be a pod whose token is verified and that reports."""
        member = self.members[which % len(self.members)]
        there = not member.frozen and not self.killed
        if member.who.verified and there and self.clock - member.reported < SILENT:
            self.forged(member, proxy, goodbye=goodbye)

    @precondition(lambda self: self.departed)
    @rule(which=st.integers(0, MEMBERS))
    def overtaken(self, which: int) -> None:
        """A report arrives after the goodbye that was sent after it."""
        member = self.departed[which % len(self.departed)]
        if self.clock - member.left < SILENT and not self.killed:
            assert member.proxy is not None
            report = Report(member.connected_at, member.said, "", self.clock)
            self.proxies[member.proxy].hear(member.who, report, self.clock)

    @precondition(lambda self: self.departed and len(self.members) < MEMBERS)
    @rule(which=st.integers(0, MEMBERS), proxy=st.integers(0, PROXIES - 1))
    def come_back(self, which: int, proxy: int) -> None:
        """One that said goodbye a while ago is there again, by a clock that was set back since."""
        member = self.departed[which % len(self.departed)]
        if self.clock - member.left >= SILENT:
            self.departed.remove(member)
            self.members.append(member)
            member.proxy, member.connected_at, member.set_back = proxy, 0, True
            self.send(member)

    @precondition(lambda self: self.members)
    @rule(which=st.integers(0, MEMBERS))
    def freeze(self, which: int) -> None:
        member = self.members[which % len(self.members)]
        # By its own word it was silent before it left.
        member.frozen = not member.set_back

    @precondition(lambda self: self.members)
    @rule(which=st.integers(0, MEMBERS))
    def leave(self, which: int) -> None:
        member = self.members[which % len(self.members)]
        if member.frozen or member.set_back:
            return
        self.members.remove(member)
        assert member.proxy is not None
        self.proxies[member.proxy].leave(member.who, member.connected_at, self.clock)
        # Its Pod goes a while later.
        member.left = self.clock
        self.departed.append(member)

    @precondition(lambda self: self.members)
    @rule(which=st.integers(0, MEMBERS))
    def delete_pod(self, which: int) -> None:
        member = self.members[which % len(self.members)]
        if member.who.pod_uid:
            self.members.remove(member)
            self.deleted.append(member)
            self.gone(member.who.pod_uid)

    @precondition(lambda self: self.deleted)
    @rule(which=st.integers(0, MEMBERS), proxy=st.integers(0, PROXIES - 1))
    def outlive(self, which: int, proxy: int) -> None:
        """A process that is ended after its Pod went on reporting meanwhile, wherever it is connected."""
        member = self.deleted[which % len(self.deleted)]
        self.connect(member, proxy)
        self.send(member)

    def gone(self, uid: str) -> None:
        self.truth.pods.discard(uid)
        self.truth.gone.add(uid)
        for proxy in self.proxies:
            proxy.pod_gone(uid)

    @rule(proxy=st.integers(0, PROXIES - 1))
    def kill_proxy(self, proxy: int) -> None:
        self.proxies[proxy] = self.proxy()
        self.killed = True
        for member in self.members:
            if member.proxy == proxy and not member.frozen:
                self.connect(member, (proxy + 1) % PROXIES)
                self.send(member)

    @rule(seconds=st.sampled_from([1, 5, int(SILENT) + 1, int(FORGOTTEN) + 1]))
    def wait(self, seconds: int) -> None:
        """Time goes by without a report, or, from time to time, with one of each member that can."""
        for _ in range(seconds):
            self.tick(1)
            if int(self.clock) % 5 == 0:
                self.beat()

    def beat(self) -> None:
        for member in self.members:
            if not member.frozen:
                self.send(member)

    @rule()
    def change(self) -> None:
        self.truth.digest = f"d{int(self.clock)}{self.connections}{self.numbers}"
        for proxy in self.proxies:
            proxy.deliver(self.truth.digest, self.clock, self.clock)

    def summed(self) -> Count:
        statuses = [receipt_status(each).model_dump(by_alias=True) for each in self.proxies]
        return count([FlagReceiptStatus.model_validate(each) for each in statuses], self.truth.digest)

    @invariant()
    def nobody_counts_twice(self) -> None:
        summed = self.summed()
        known = {each.who.id for proxy in self.proxies for each in proxy.standings()}
        assert summed.served <= summed.total <= len(known)
        assert len({each.id for each in summed.laggards}) == len(summed.laggards) <= summed.lagging

    @invariant()
    def the_count_is_right_at_any_time(self) -> None:
        """But for what went with a proxy that was killed, until all who can have spoken again."""
        if self.killed:
            return
        there = [each for each in self.members if each.who.pod or self.clock - each.reported < FORGOTTEN]
        silent = {each.who.name for each in there if self.clock - each.reported >= SILENT}
        wrong = {each.who.name for each in there if each.said != self.truth.digest}
        summed = self.summed()
        assert (summed.served, summed.total) == (len(there) - len(silent | wrong), len(there))
        assert {each.name for each in summed.laggards} == silent | wrong

    def teardown(self) -> None:
        """Everybody thaws and serves the newest; Pods of those who left go, and the others are forgotten in
        time.
        """
        alive = {member.who.pod_uid for member in self.members}
        for uid in sorted(self.truth.pods - alive):
            self.gone(uid)
        for member in self.members:
            member.frozen, member.digest = False, self.truth.digest
        for _ in range(int(FORGOTTEN) // 5 + 2):
            self.tick(5)
            self.beat()
        summed = self.summed()
        assert (summed.served, summed.total) == (len(self.members), len(self.members))
        assert summed.laggards == ()


Receipts.TestCase.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
TestReceipts: Any = Receipts.TestCase
