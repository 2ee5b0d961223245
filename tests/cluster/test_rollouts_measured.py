"""Rollouts of real commits, decided by a real Prometheus that scrapes real evaluators, while applications ask
them by the published provider and report what fails.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from openfeature import api
from openfeature.evaluation_context import EvaluationContext

from tests.cluster.fleets import followed_source, wait_served
from tests.cluster.patience import within
from tests.cluster.pods import PodProcess, pods
from tests.cluster.prometheus import Prometheus, run_prometheus
from tests.tracking import tracking_provider
from tests.worlds.flags import flags
from tests.worlds.objects import manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from openfeature.client import OpenFeatureClient

    from tests.cluster.proxies import ProxyProcess
    from tests.cluster.spines import Spine

GOOD: Final = "good-checkout"
BAD: Final = "bad-checkout"
RULES: Final = Path(__file__).parents[2] / "deploy" / "monitoring" / "rules.yaml"
ROLLED_OUT: Final = 240.0
"""Seconds that both rollouts may take on a busy machine."""
ERRORS: Final = 'feature_flag_events_total{feature_flag_key="{{ flag }}",arm="{{ arm }}",event="%s"}[1m]'

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass(frozen=True, slots=True)
class Answer:
    """What an application was answered, and made of it."""

    at: float
    user: int
    arm: str
    value: bool


@dataclass
class Load:
    """Applications of one flag: each user asks once, and its application reports whether the payment failed.

    The new checkout fails for every user if the flag is BAD; else one payment of 25 fails in any case.
    """

    key: str
    clients: Sequence[OpenFeatureClient]
    answers: list[Answer] = field(default_factory=list)

    def ask(self, user: int) -> None:
        """One user asks one evaluator, and pays."""
        client = self.clients[user % len(self.clients)]
        context = EvaluationContext(f"user-{user}", {"tier": "gold"})
        details = client.get_boolean_details(self.key, default_value=False, evaluation_context=context)
        arm = str(details.flag_metadata.get("flagstaff.dev/rollout-arm", ""))
        self.answers.append(Answer(time.monotonic(), user, arm, details.value))
        fails = user % 25 == 0 or (self.key == BAD and details.value)
        client.track(f"{self.key}-{'failed' if fails else 'paid'}", context)

    def values_of(self, arm: str) -> Counter[bool]:
        """The values that users of an arm got."""
        return Counter(answer.value for answer in self.answers if answer.arm == arm)


@contextlib.contextmanager
def under_load(loads: Sequence[Load]) -> Iterator[None]:
    """Users ask for as long as the block lasts."""
    ended, failures = threading.Event(), list[Exception]()

    def ask() -> None:
        user = 0
        try:
            while not ended.wait(0.005):
                for load in loads:
                    load.ask(user)
                user += 1
        except Exception as error:  # noqa: BLE001 - told by the thread that waits
            failures.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(30)
    assert not failures, failures


@pytest.fixture
def evaluators(spine: Spine, delivering: ProxyProcess, tmp_path: Path) -> Iterator[list[PodProcess]]:
    """Two, which serve both flags."""
    commit = spine.push(flags__json=flags(**{GOOD: "off", BAD: "off"}))
    spine.wait_applied(commit)
    source = followed_source(delivering.target, spine.name)
    with pods(spine.plane, spine.name, source, tmp_path / "pods", "web-1", "web-2") as started:
        wait_served(spine, "2/2")
        yield started


@pytest.fixture
def clients(evaluators: list[PodProcess]) -> Iterator[list[OpenFeatureClient]]:
    """An application beside each evaluator."""
    providers = [tracking_provider(pod.port("ofrep")) for pod in evaluators]
    for number, provider in enumerate(providers):
        api.set_provider_and_wait(provider, f"web-{number}")
    yield [api.get_client(f"web-{number}") for number in range(len(providers))]
    api.shutdown()
    for provider in providers:
        provider.session.close()


@pytest.fixture
def prometheus(evaluators: list[PodProcess], tmp_path: Path) -> Iterator[Prometheus]:
    home = tmp_path / "prometheus"
    home.mkdir()
    with run_prometheus(home, RULES, {"evaluator": [pod.port("management") for pod in evaluators]}) as server:
        yield server


def templates(address: str) -> list[dict[str, Any]]:
    """Failed payments by all payments, and users by arm."""
    provider = {"type": "prometheus", "address": address}
    failed, paid = (
        f"sum(increase({ERRORS % '{{ flag }}-NAME'}))".replace("NAME", name) for name in ("failed", "paid")
    )
    labels = 'feature_flag_key="{{ flag }}",arm="{{ arm }}",rollout_revision="{{ revision }}"'
    users = f"sum(feature_flag_units{{{labels}}})"
    query = {"query": f"{failed} / ({failed} + {paid})", "samples": f"{failed} + {paid}"}
    return [
        manifest("MetricTemplate", "failed-payments", {"provider": provider, **query}),
        manifest("MetricTemplate", "users", {"provider": provider, "query": users}),
    ]


def rollout(name: str) -> dict[str, Any]:
    """A rollout of the flags `NAME-*`, in short steps."""
    metrics = [
        {
            "name": "failed-payments",
            "templateRef": {"name": "failed-payments"},
            "thresholdRange": {"max": 0.5},
            "interval": "1m",
            "minSamples": 2,
        },
        {"name": "users", "type": "sampleRatio", "templateRef": {"name": "users"}},
    ]
    return manifest(
        "FlagRollout",
        name,
        {
            "flagSetRef": {"name": "flags"},
            "flags": [f"{name}-*"],
            "steps": [{"share": 1, "minDuration": "5s"}, {"share": 50, "minDuration": "5s"}],
            "analysis": {"interval": "10s", "failureLimit": 2, "metrics": metrics},
        },
    )


def status(spine: Spine, name: str) -> dict[str, Any]:
    found: dict[str, Any] = spine.get("flagrollout", name).get("status", {})
    return found


def only_candidate(found: dict[str, Any]) -> dict[str, Any]:
    return next(iter(found.get("candidates", ())), {})


def describe_rollouts(spine: Spine) -> str:
    """Both rollouts, for the message of a failed test."""
    return json.dumps([status(spine, name) for name in ("good", "bad")], indent=1)[-6000:]


def event_reasons(spine: Spine) -> set[str]:
    """The reasons of all Events about the rollouts."""
    return {event["reason"] for name in ("good", "bad") for event in spine.events(name)}


def watch_phases(spine: Spine, name: str, ends: str) -> Callable[[], list[tuple[str, float]]]:
    """Follows a rollout; returns its (phase, share) so far once it is in the phase `ends`, else nothing."""
    seen: list[tuple[str, float]] = []

    def follow() -> list[tuple[str, float]]:
        found = status(spine, name)
        now = (str(found.get("phase")), float(only_candidate(found).get("share") or 0))
        if not seen or seen[-1] != now:
            seen.append(now)
        return seen if found.get("phase") == ends else []

    return follow


def test_a_rollout_advances_to_promotion_and_another_is_rolled_back_by_what_applications_report(
    spine: Spine, evaluators: list[PodProcess], clients: list[OpenFeatureClient], prometheus: Prometheus
) -> None:
    spine.apply(*templates(prometheus.address), rollout("good"), rollout("bad"))
    for name in ("good", "bad"):
        spine.wait("flagrollout", lambda found: found.get("status", {}).get("promoted"), name)
    good, bad = Load(GOOD, clients), Load(BAD, clients)
    for user in range(50):
        # Evaluators that know the events before the rollout let them begin at 0.
        good.ask(user)
        bad.ask(user)
    commit = spine.push(flags__json=flags(**{GOOD: "on", BAD: "on"}))
    ends = watch_phases(spine, "good", "Succeeded"), watch_phases(spine, "bad", "Failed")
    # Without traffic nothing can be said: both are held.
    for name in ("good", "bad"):
        spine.wait(
            "flagrollout", lambda found: only_candidate(found["status"]).get("reason") == "Inconclusive", name
        )
    with under_load((good, bad)):
        within(lambda: min([len(end()) for end in ends]), partial(describe_rollouts, spine), ROLLED_OUT)
        wait_served(spine, "2/2")
        shares = [*dict.fromkeys(share for _, share in ends[0]() if 0 < share < 100)]
        settled = time.monotonic()
        within(lambda: good.answers[-1].at > settled + 1)
    assert shares == [1, 50]
    assert status(spine, "good")["history"][0]["outcome"] == "Promoted"
    rolled_back = status(spine, "bad")
    reason = only_candidate(rolled_back)["reason"]
    assert (reason, rolled_back["history"][0]["outcome"]) == ("FailureLimit", "RolledBack")
    description = " ".join(spine.kubectl("describe", "flagrollout", "bad").split())
    for words in (
        "Name: failed-payments",
        "Threshold: at most 0.5",
        "Value: ",
        f'{{feature_flag_key="{BAD}"',
    ):
        assert words in description
    # Git owns the definitions, which say "on" for both.
    assert spine.served_variants() == {GOOD: "on", BAD: "on"}
    assert spine.get("ffc")["metadata"]["annotations"]["flagstaff.dev/revision"].endswith(commit)
    for load, last in ((good, True), (bad, False)):
        assert {answer.value for answer in load.answers if answer.at > settled} == {last}
        assert (set(load.values_of("baseline")), set(load.values_of("candidate"))) == ({False}, {True})
    assert not good.values_of("excluded")
    expected = {"RolloutStarted", "StepAdvanced", "Promoted", "CheckFailed", "RolledBack"}
    # Events are posted beside the status.
    within(lambda: expected <= event_reasons(spine), lambda: event_reasons(spine))
