"""Schedules that are written out, on flagd's own core: it says the same as we do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from evaluator.flags.merge import parse
from evaluator.wire.sync_messages import encode

if TYPE_CHECKING:
    from tests.contract.flagd_core import FlagdCore


def test_flagd_serves_a_schedule(flagd: FlagdCore) -> None:
    flag = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
    between = {
        "now": ["2020-01-01", "2100-01-01", "Europe/Berlin"],
        "since": ["2020-01-01", None, "UTC"],
        "over": [None, "2020-01-01", "UTC"],
        "to come": ["2100-01-01", None, "UTC"],
    }
    flags = {key: {**flag, "targeting": {"if": [{"between": times}, "on"]}} for key, times in between.items()}
    found = parse(json.dumps({"flags": flags}).encode(), file="flags.json").flag_set
    asks = [{"key": key, "type": "boolean", "context": {}} for key in between]
    answers = flagd.ask(encode(found).decode(), asks).answers
    assert [one["variant"] for one in answers] == ["on", "on", "off", "off"]
