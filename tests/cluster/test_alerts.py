"""Alerts, to a real HTTP server: what the example shows, and an outage in which nothing is lost or told twice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.cluster.listener import Listener, listening
from tests.cluster.objects import condition, flags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.spines import Spine

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "notifications" / "alerts.yaml"


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as found:
        yield found


def example(listener: Listener) -> list[dict[str, Any]]:
    """What the example applies, on the listener's port."""
    text = EXAMPLE.read_text(encoding="utf-8").replace("http://127.0.0.1:8099/", listener.url)
    return list(yaml.safe_load_all(text))


def test_the_examples_provider_is_told_of_the_next_commit(spine: Spine, listener: Listener) -> None:
    spine.apply(*example(listener))
    spine.wait_ready("flagprovider", "local")
    spine.wait_ready("flagalert", "everything")
    commit = spine.push("off for the night", flags__json=flags(banner="off"))
    received = listener.wait(lambda event: event["reason"] == "Applied")
    event = received.event
    assert event["involvedObject"] | {"uid": ""} == {
        "apiVersion": "flagstaff.dev/v1beta1", "kind": "FlagSet", "namespace": spine.name, "name": "flags",
        "uid": "",
    }  # fmt: skip
    assert event["severity"] == "info"
    assert event["metadata"]["flagstaff.dev/revision"] == f"main@sha1:{commit}"
    assert event["metadata"]["flagstaff.dev/summary"] == "flags of the shop"
    assert event["metadata"]["flagstaff.dev/idempotency-key"] == received.key
    assert received.headers["gotk-component"] == "flagstaff-controller"
    found = spine.wait("flagprovider", lambda each: not each["status"].get("pending"), "local")
    assert condition(found, "Delivered")["status"] == "True"
    assert found["status"]["waiting"] == 0
