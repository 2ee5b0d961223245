"""Messages about FlagRollouts lead to the page where people see what waits."""

from __future__ import annotations

from controller.events.alert_messages import fill, of_event
from controller.events.commit_pages import PageLinks
from controller.runtime.event import Occurrence, event_of
from tests.unit.controller.delivery.watcher_renderers import ALERT
from tests.worlds.events import NOW, event
from tests.worlds.objects import thing
from tests.worlds.stages import Sink


def test_an_event_of_a_rollout_has_the_address_of_what_waits_and_others_have_none() -> None:
    sink = Sink()
    links = PageLinks((sink,), "https://flags.example.com/")
    waits = Occurrence(
        "WaitingForApproval", "it waits", metadata={"flagstaff.dev/rollout-candidate": "sha256:1"}
    )
    links.accept(event_of(thing("FlagRollout", "checkout"), waits, NOW))
    links.accept(event("Applied"))
    of_rollout, of_set = sink.events
    assert of_rollout.metadata == {
        "flagstaff.dev/rollout-candidate": "sha256:1",
        "flagstaff.dev/page": "https://flags.example.com/ui/pending",
    }
    assert of_set.metadata == {}
    told = fill("${message}: ${page}", of_event(of_rollout, ALERT), "shop")
    assert told == "it waits: https://flags.example.com/ui/pending"
