"""Prerequisites that are written out, on flagd's own core: a user is let in exactly where the same core gives
the wanted variant for the flag that is needed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from evaluator.flags.merge import parse
from evaluator.resolving.resolve import compile_flag_set, resolve
from evaluator.wire.sync_messages import encode
from tests.contract.generated_flags import contexts, definitions
from tests.contract.generated_rules import VARIANTS

if TYPE_CHECKING:
    from tests.contract.flagd_core import FlagdCore


def test_a_user_is_let_in_where_flagd_gives_the_wanted_variant(flagd: FlagdCore) -> None:
    seen: set[bool] = set()

    @settings(
        max_examples=200,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(definitions(), st.sampled_from(VARIANTS), st.lists(contexts, min_size=6, max_size=6))
    def compare(document: dict[str, Any], wanted: str, drawn: list[tuple[Any, dict[str, Any]]]) -> None:
        needed = [key for key, flag in document["flags"].items() if wanted in flag["variants"]]
        for key in needed:
            document["flags"][f"needs {key}"] = {
                "state": "ENABLED",
                "variants": {"in": "in", "out": "out"},
                "targeting": {"if": [{"flag": [key, wanted]}, "in", "out"]},
            }
        found = parse(json.dumps(document).encode(), file="flags.json").flag_set
        needed = [key for key in needed if f"needs {key}" in found.flags]
        given = [{**one, "targetingKey": key} if key is not None else one for key, one in drawn]
        pairs = [(key, context) for key in needed for context in given]
        asks = [
            {"key": name, "type": "any", "context": context}
            for key, context in pairs
            for name in (key, f"needs {key}")
        ]
        reply = flagd.ask(encode(found).decode(), asks)
        assert reply.refused is None
        compiled = compile_flag_set(found)
        for at, (key, context) in enumerate(pairs):
            own, dependent = reply.answers[2 * at : 2 * at + 2]
            if own.get("error") == "PARSE_ERROR":
                # A rule that fails is one that fails, wherever it is written.
                continue
            let_in = "error" not in own and own["variant"] == wanted
            seen.add(let_in)
            case = f"{found.flags[key].targeting} {context}"
            assert dependent.get("variant") == ("in" if let_in else "out"), case
            mine = resolve(compiled, f"needs {key}", None, context, reply.now)
            assert mine.variant == dependent["variant"], case

    compare()
    assert seen == {True, False}


def test_the_same_users_are_in_the_same_share(flagd: FlagdCore) -> None:
    shares = {"fractional": [["on", 30], ["off", 70]]}
    variants = {"on": True, "off": False}
    flag = {"state": "ENABLED", "variants": variants, "defaultVariant": "off"}
    document = {"flags": {
        "new-cart": {**flag, "targeting": shares},
        "pay": {**flag, "targeting": {"if": [{"flag": ["new-cart", "on"]}, "on", "off"]}},
    }}  # fmt: skip
    found = parse(json.dumps(document).encode(), file="flags.json").flag_set
    users = [{"targetingKey": f"user-{number}"} for number in range(2_000)]
    asks = [{"key": key, "type": "boolean", "context": user} for key in found.flags for user in users]
    answers = [one["variant"] for one in flagd.ask(encode(found).decode(), asks).answers]
    assert answers[:2_000] == answers[2_000:]
    assert 500 < answers.count("on") / 2 < 700
