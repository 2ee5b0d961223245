"""`flagstaff up --follow`: a second host that serves what the first serves, also while that is away."""

from __future__ import annotations

import asyncio
import signal
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.clients.asking import ask_flag, served_value
from tests.clients.evaluator import evaluator
from tests.clients.test_up_fleet import flagstaff, shows
from tests.clients.up import Up, banner, up
from tests.repositories import Repository
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def management(ports: dict[str, int]) -> str:
    return f"127.0.0.1:{ports['management']}"


def page(ports: dict[str, int]) -> str:
    with urllib.request.urlopen(f"http://{management(ports)}/ui/delivery") as answer:
        text: str = answer.read().decode()
    return text


@dataclass
class Hosts:
    """A leader, its follower with an evaluator behind it, and their ports."""

    running: ExitStack
    repository: Repository
    state: Path
    first: str
    leader: Up
    led: dict[str, int]
    follower: Up
    ports: dict[str, int]
    behind: int
    """The evaluator's port of OFREP."""

    @property
    def name(self) -> str:
        """The leader's, as the follower tells it."""
        return f"127.0.0.1:{self.led['sync']}"

    def follow_again(self) -> Up:
        """Stop the follower, and start it on the same ports."""
        self.follower.stop()
        ports = {f"{name}_port": self.ports[name] for name in ("sync", "management")}
        return self.running.enter_context(
            up(f"--follow=grpc://{self.name}", "--state-dir", str(self.state), **ports)
        )

    def wait(self, revision: str, *words: str) -> tuple[int, str]:
        """`flagstaff wait` at the follower."""
        to = management(self.ports)
        return flagstaff("wait", "flagset/flags", "--revision", revision, "--to", to, *words)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    repository, state = Repository(tmp_path / "repository"), tmp_path / "state"
    first = repository.commit(flags__json=banner("plain"))
    with ExitStack() as running:
        leader = running.enter_context(up(repository, "--override", "banner=party"))
        led = leader.ready()
        address = f"--follow=grpc://127.0.0.1:{led['sync']}"
        follower = running.enter_context(up(address, "--state-dir", str(state)))
        ports = follower.ready()
        source = f'[{{"uri":"127.0.0.1:{ports["sync"]}","provider":"grpc"}}]'
        behind = running.enter_context(evaluator("--sources", source, cwd=tmp_path))
        port = behind.next_event("listening")["ofrep"]
        shows(management(ports), "2 of 2 evaluators serve what is delivered")
        yield Hosts(running, repository, state, first, leader, led, follower, ports, port)


def test_a_follower_serves_and_counts_as_the_leader_does(hosts: Hosts) -> None:
    shows(management(hosts.led), "2 of 2 evaluators serve what is delivered")
    served = [ask_flag(port) for port in (hosts.led["ofrep"], hosts.ports["ofrep"], hosts.behind)]
    assert served[0]["value"] == "Hooray"
    assert served == [served[0]] * 3
    code, text = hosts.wait(hosts.first)
    assert (code, f"2 of 2 evaluators serve main@sha1:{hosts.first}; following {hosts.name}" in text) == (
        0,
        True,
    )
    assert hosts.name in page(hosts.ports)
    code, text = hosts.wait(hosts.first, "--for", "everybody")
    assert (code, f"does not know who gets which flags: following {hosts.name}" in text) == (1, True), text
    second = hosts.repository.commit(flags__json=banner("party"))
    assert hosts.wait(second)[0] == 0


def test_a_follower_and_its_evaluators_keep_serving_while_the_leader_is_away(hosts: Hosts) -> None:
    hosts.leader.stop(signal.SIGKILL)
    cut_off = f"cut off from {hosts.name} since 20"
    assert cut_off in hosts.follower.source("down")["message"]
    assert cut_off in page(hosts.ports)
    code, text = hosts.wait("f" * 40, "--timeout", "1s")
    assert (code, cut_off in text) == (1, True), text
    again = hosts.follow_again()
    again.ready()
    assert served_value(hosts.behind) == "Hooray"
    assert cut_off in again.source("down")["message"]
    shows(management(hosts.ports), "2 of 2 evaluators serve what is delivered")
    hosts.running.enter_context(up(hosts.repository, sync_port=hosts.led["sync"]))
    assert again.source("up")["message"] == f"following {hosts.name} again"
    asyncio.run(until(lambda: served_value(hosts.behind) == "Welcome"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--path", "flags", "--rollout", "x.yaml"), "--follow excludes --path, --rollout: the other"),
        (("other",), "--follow excludes SOURCE: the other"),
    ],
)
def test_a_follower_takes_no_options_of_a_leader(words: tuple[str, ...], message: str) -> None:
    code, text = flagstaff("up", "--follow", "grpc://127.0.0.1:1", *words)
    assert (code, message in text) == (2, True), text


@pytest.mark.parametrize("address", ["127.0.0.1:8015", "http://127.0.0.1:8015", "[]"])
def test_an_address_that_nobody_can_follow_is_refused(address: str) -> None:
    code, text = flagstaff("up", "--follow", address)
    assert (code, "--follow" in text, "grpc" in text) == (2, True, True), text


def test_up_needs_a_source_or_a_leader() -> None:
    code, text = flagstaff("up")
    assert (code, text) == (2, "flagstaff up: give a SOURCE, or --follow ADDRESS\n")
