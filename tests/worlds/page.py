"""A source of the page in memory, and requests to the page without a port."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from html import unescape
from typing import TYPE_CHECKING, Any

from controller.delivery.reach import waits_of_others
from controller.delivery.set_reading import read_sets
from controller.delivery.set_state import Where
from controller.flagsets.compose import compose
from controller.page.page_server import respond
from controller.page.page_source import FlagHistory, ShownSet
from evaluator.http.messages import Request
from evaluator.resolving.resolve import compile_flag_set
from tests.worlds import delivery as worlds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.api.meta import Resource
    from controller.delivery.actions import Wait
    from controller.delivery.promotion import Promotion
    from controller.delivery.set_state import SetState
    from controller.page.page_source import FleetMember, ShownEvent, VariantRates
    from evaluator.http.messages import Response

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)


def flag(*, on: bool = False, **more: Any) -> dict[str, Any]:
    """The definition of a switch."""
    default = "on" if on else "off"
    return {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": default, **more}


def shown_set(flags: Mapping[str, Any], name: str = "flags", **more: Any) -> ShownSet:
    """A flag set as the page shows it; `more` as ShownSet has it."""
    document = json.dumps({"flags": flags}).encode()
    made = compose({"flags.json": document}, ["flags.json"], provenance={}, previous=None, lenient=True)
    assert (made.accepted, made.missing) == (True, ()), made.problems
    return replace(ShownSet(name, made.flag_set, compile_flag_set(made.flag_set)), **more)


@dataclass
class FakeSource:
    """A PageSource of what a test gives it."""

    shown: Sequence[ShownSet] = ()
    histories: Mapping[tuple[str, str], FlagHistory] = field(default_factory=dict)
    known_rates: Mapping[str, VariantRates] = field(default_factory=dict)
    resources: Sequence[Resource] = ()
    known_events: Sequence[ShownEvent] = ()
    fleet: Mapping[str, Sequence[FleetMember]] = field(default_factory=dict)
    known_faults: Sequence[str] = ()
    promotions: Mapping[tuple[str, str], Promotion] = field(default_factory=dict)
    where: Where = Where.CLUSTER
    version: str = "1"

    def sets(self) -> Sequence[str]:
        return sorted(one.name for one in self.shown)

    def shown_set(self, name: str) -> ShownSet | None:
        return next((one for one in self.shown if one.name == name), None)

    def environments(self, name: str, key: str) -> Sequence[ShownSet]:
        del name, key
        return self.shown if len(self.shown) > 1 else ()

    def history(self, name: str, key: str) -> FlagHistory:
        return self.histories.get((name, key), FlagHistory())

    def rates(self, name: str, keys: Sequence[str]) -> Mapping[str, VariantRates]:
        del name
        return {key: self.known_rates[key] for key in keys if key in self.known_rates}

    def states(self) -> Sequence[SetState]:
        return read_sets(self.resources, worlds.NOW, self.where)

    def other_waits(self) -> Sequence[Wait]:
        return [*waits_of_others(self.resources, self.states())]

    def events(self) -> Sequence[ShownEvent]:
        return self.known_events

    def members(self) -> Mapping[str, Sequence[FleetMember]]:
        return self.fleet

    def promotion(self, rollout: str, revision: str) -> Promotion | None:
        return self.promotions.get((rollout, revision))

    def faults(self) -> Sequence[str]:
        return self.known_faults


def ask(source: FakeSource, target: str = "/ui", body: str = "") -> Response:
    """The page's answer to a GET, or to a POST of a form."""
    path, _, query = target.partition("?")
    return respond(Request("POST" if body else "GET", path, query, (), body.encode(), "test"), source, NOW)


def text(response: Response) -> str:
    """The page, its characters unescaped."""
    return unescape(response.body.decode())
