"""What is to happen after a try."""

from __future__ import annotations

from datetime import timedelta

import pytest

from controller.events.deliverer import LONGEST, OLDEST, Again, Dead, verdict
from controller.events.senders import PostResult
from controller.runtime.limits import Pace
from tests.worlds.events import NOW, message


@pytest.mark.parametrize("status", [200, 202, 204])
def test_status_2xx_is_delivered(status: int) -> None:
    assert verdict(message(), PostResult(status, ""), 1, 0.0, NOW) is None


@pytest.mark.parametrize("status", [0, 301, 401, 403, 404, 408, 429, 500, 503])
def test_other_statuses_are_retried(status: int) -> None:
    assert verdict(message(), PostResult(status, ""), 1, 0.0, NOW) == Again(1.0)


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_refused_message_is_given_up(status: int) -> None:
    assert verdict(message(), PostResult(status, "status 400: no"), 1, 0.0, NOW) == Dead("status 400: no")


@pytest.mark.parametrize(("type_", "again"), [("gitlab", False), ("bitbucket", False), ("generic", True)])
def test_status_of_an_unknown_commit_is_given_up(type_: str, again: bool) -> None:
    found = verdict(message(), PostResult(404, "status 404"), 1, 0.0, NOW, type_)
    assert found == (Again(1.0) if again else Dead("status 404"))


def test_sign_in_page_of_azure_devops_is_a_failure() -> None:
    asked = message(alert="", reason="TestAlert")
    assert verdict(asked, PostResult(203, "status 203"), 1, 0.0, NOW, "azuredevops") == Dead("status 203")
    assert verdict(message(), PostResult(203, "status 203"), 1, 0.0, NOW, "azuredevops") == Again(1.0)
    assert verdict(message(), PostResult(203, "status 203"), 1, 0.0, NOW, "generic") is None


@pytest.mark.parametrize(("type_", "again"), [("flux", None), ("generic", Again(1.0))])
def test_a_duplicate_that_flux_refuses_was_delivered(type_: str, again: Again | None) -> None:
    assert verdict(message(), PostResult(429, "status 429"), 1, 0.0, NOW, type_) == again


def test_test_message_is_given_up_at_the_first_answer() -> None:
    asked = message(alert="", reason="TestAlert")
    assert verdict(asked, PostResult(503, "status 503"), 1, 0.0, NOW) == Dead("status 503")
    assert verdict(asked, PostResult(0, "connection refused"), 1, 0.0, NOW) == Again(1.0)


def test_retries_back_off_to_five_minutes_with_jitter() -> None:
    found = [verdict(message(), PostResult(500, ""), failures, 0.0, NOW) for failures in (1, 2, 5, 10, 1000)]
    assert found == [Again(1.0), Again(2.0), Again(16.0), Again(LONGEST), Again(LONGEST)]
    assert verdict(message(), PostResult(500, ""), 1, 1.0, NOW) == Again(0.8)


def test_retry_after_is_honoured() -> None:
    assert verdict(message(), PostResult(429, "", 120.0), 1, 0.0, NOW) == Again(120.0)
    assert verdict(message(), PostResult(429, "", 1.0), 10, 0.0, NOW) == Again(LONGEST)


def test_message_is_given_up_after_24_hours() -> None:
    answer = PostResult(0, "connection refused")
    assert isinstance(verdict(message(), answer, 9, 0.0, NOW + OLDEST), Again)
    found = verdict(message(), answer, 9, 0.0, NOW + OLDEST + timedelta(seconds=1))
    assert found == Dead("not delivered for 24 h, last: connection refused")
    assert isinstance(verdict(message(time="odd"), answer, 9, 0.0, NOW), Dead)


def test_pace_allows_a_burst_of_20_then_two_a_second() -> None:
    pace = Pace()
    assert [pace.wait(0.0) for _ in range(22)] == [0.0] * 20 + [0.5, 1.0]
    assert pace.wait(100.0) == 0.0
