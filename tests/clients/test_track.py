"""Events of users, by the published OFREP provider as docs/rollout-analysis.md extends it, and by curl."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import urllib.request
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest
from openfeature import api
from openfeature.evaluation_context import EvaluationContext
from openfeature.track import TrackingEventDetails
from prometheus_client.parser import text_string_to_metric_families

from tests.clients.evaluator import evaluator
from tests.clients.server import Server
from tests.clients.test_curl import curl
from tests.clients.test_evaluator import ready
from tests.clients.up import banner
from tests.clients.upstreams import replace
from tests.rollout_sets import NEW, rolled_out
from tests.tracking import tracking_provider

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from openfeature.contrib.provider.ofrep import OFREPProvider

USERS: Final = [EvaluationContext(f"user-{number}", {"tier": "gold"}) for number in range(50)]


@pytest.fixture
def half() -> Iterator[Server]:
    """A flag whose new definition half of all users get."""
    running = Server(rolled_out(50))
    yield running
    running.close()


@pytest.fixture
def provider(half: Server) -> Iterator[OFREPProvider]:
    """The provider of the page."""
    provider = tracking_provider(half.ports.ofrep)
    api.set_provider_and_wait(provider, "track")
    yield provider
    api.shutdown()
    provider.session.close()


def scrape(port: int, metric: str) -> dict[tuple[str, str], float]:
    """Values by arm and event."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        families = [*text_string_to_metric_families(answer.read().decode())]
    return {
        (sample.labels["arm"], sample.labels.get("event", "")): sample.value
        for family in families
        for sample in family.samples
        if sample.name == metric and sample.value
    }


def test_an_application_without_a_metric_gets_one_from_its_sdks_track_call(
    half: Server, provider: OFREPProvider
) -> None:
    assert provider.base_url.endswith(str(half.ports.ofrep))
    client = api.get_client("track")
    failed: Counter[str] = Counter()
    for user in USERS:
        details = client.get_boolean_details(NEW.key, default_value=False, evaluation_context=user)
        failed[str(details.flag_metadata["flagstaff.dev/rollout-arm"])] += details.value
        client.track("payment-failed" if details.value else "payment-done", user, TrackingEventDetails(2.5))
    counted = scrape(half.ports.management, "feature_flag_events_total")
    done = len(USERS) - failed["candidate"]
    assert 0 < done < len(USERS)
    assert counted == {
        ("candidate", "payment-failed"): failed["candidate"],
        ("baseline", "payment-done"): done,
    }
    values = scrape(half.ports.management, "feature_flag_event_value_sum")
    assert values["baseline", "payment-done"] == 2.5 * done


def test_an_event_is_reported_by_curl_and_from_pages_of_other_origins(half: Server) -> None:
    url = f"http://127.0.0.1:{half.ports.ofrep}/track"
    body = '{"trackingEventName":"paid","context":{"targetingKey":"user-1"}}'
    status, answer = curl("-H", "origin: https://shop.example.com", "-d", body, url)
    assert (status, [flag["key"] for flag in answer["flags"]]) == (200, [NEW.key])
    connection = http.client.HTTPConnection("127.0.0.1", half.ports.ofrep, timeout=20)
    with contextlib.closing(connection):
        asked = {"origin": "https://shop.example.com", "access-control-request-method": "POST"}
        connection.request("OPTIONS", "/track", headers=asked)
        assert connection.getresponse().getheader("access-control-allow-origin") == "*"


@pytest.mark.parametrize(
    ("option", "status"), [("--track-events=off", 404), ("--track-events=paid,lost", 200)]
)
def test_an_option_names_the_events_that_count(tmp_path: Path, option: str, status: int) -> None:
    replace(tmp_path / "flags.json", banner("plain"))
    with evaluator("-f", "file:flags.json", option, cwd=tmp_path) as running:
        url = f"http://127.0.0.1:{ready(running)['ofrep']}/track"
        body = '{"trackingEventName":"paid","context":{"targetingKey":"user-1"}}'
        command = ("-o", "/dev/null", "-d", body, url)
        assert _status(*command) == status
        assert _status(*command[:2], "-d", body.replace("paid", "other"), url) in (400, 404)
        running.stop()


def _status(*words: str) -> int:
    printed = subprocess.run(
        ["curl", "-sS", "--max-time", "20", "-w", "%{http_code}", *words],
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    return int(printed.stdout)
