"""Flags under overrides, on flagd's published cores: a user gets what the latest override keeps for them, and
else what the same core gives for the definition.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from controller.runtime.clock import now
from evaluator.flags.accept import Progress, effective
from evaluator.flags.merge import parse
from evaluator.flags.model import BUCKETING_KEY
from evaluator.flags.overrides import Kept, Override
from evaluator.resolving.resolve import compile_flag_set, resolve
from evaluator.wire.sync_messages import encode
from tests.contract.generated_flags import attributes, flags
from tests.contract.generated_rules import VARIANTS, texts
from tests.contract.published_core import NOW

if TYPE_CHECKING:
    from evaluator.flags.model import FlagSet
    from tests.contract.flagd_core import FlagdCore
    from tests.contract.published_core import Core

EXAMPLES = settings(
    max_examples=100, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
KINDS = {bool: "boolean", str: "string", int: "float", float: "float", dict: "object"}
CODE_DEFAULT = "the application's default"
GOLD = {"==": [{"var": "tier"}, "gold"]}
contexts = st.tuples(st.none() | texts, attributes, st.sampled_from(["gold", "iron"])).map(
    lambda drawn: {**drawn[1], "tier": drawn[2]} | ({} if drawn[0] is None else {"targetingKey": drawn[0]})
)


@dataclass(frozen=True)
class Case:
    """A definition, or none, and overrides of it; those that last end an hour later than the others."""

    desired: FlagSet
    overrides: tuple[Override, ...]
    lasting: tuple[bool, ...]

    def at(self, moment: int) -> tuple[Override, ...]:
        """The overrides, of which those that do not last have ended by a moment."""
        ends = (moment + 3_600 if lasts else moment for lasts in self.lasting)
        return tuple(replace(one, expires=end) for one, end in zip(self.overrides, ends, strict=True))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    flag = draw(flags())
    if not isinstance(flag.get("targeting", {}), dict):
        # Of a whole rule that is a literal, the published Python cores make nothing, or an error.
        del flag["targeting"]
    shared = {"$evaluators": {"shared": {"if": [GOLD, "on", None]}}}
    parsed = parse(json.dumps({**shared, "flags": {"f": flag}}).encode(), file="flags.json")
    assume(not parsed.errors)
    # The application asks for one type, whatever a commit makes of the flag.
    values = st.sampled_from([*flag["variants"].values()])
    desired = parsed.flag_set if draw(st.booleans()) else replace(parsed.flag_set, flags={})
    overrides, lasting = [], []
    for number in range(draw(st.integers(1, 3))):
        lasts = draw(st.booleans())
        override = Override(f"o{number}", "f", draw(st.sampled_from([*VARIANTS, "gone"])), "INC-1", None)
        override = replace(override, kept=Kept(draw(values)))
        if lasts and draw(st.booleans()):
            # A stock evaluator ends no disabled flag by itself.
            override = replace(override, variant=None, kept=Kept())
        elif draw(st.booleans()):
            override = replace(override, audience=GOLD)
        overrides.append(override)
        lasting.append(lasts)
    return Case(desired, tuple(overrides), tuple(lasting))


def compare(ask: Any, case: Case, drawn: list[dict[str, Any]], moment: int, generation: str = "v2") -> None:
    overrides = case.at(moment)
    served = effective(case.desired, Progress(overrides=overrides))
    assume("f" in served.flags)
    compiled = compile_flag_set(replace(served, metadata={BUCKETING_KEY: generation}))
    given_now = ask(served, drawn)
    without = ask(case.desired, drawn) if "f" in case.desired.flags else [CODE_DEFAULT] * len(drawn)
    for context, value, plain in zip(drawn, given_now, without, strict=True):
        concerned = [
            one
            for one in overrides
            if moment < (one.expires or 0) and (one.audience != GOLD or context["tier"] == "gold")
        ]
        expected = plain
        if concerned:
            kept = concerned[-1].kept
            expected = CODE_DEFAULT if concerned[-1].variant is None or kept is None else kept.value
        assert value == expected, context
        ours = resolve(compiled, "f", None, context, moment)
        assert (CODE_DEFAULT if ours.variant is None else ours.value) == value


def test_flagd_serves_overrides_as_they_lie_over_each_other(flagd: FlagdCore) -> None:
    def ask(flag_set: FlagSet, drawn: list[dict[str, Any]]) -> list[object]:
        asks = [{"key": "f", "type": "any", "context": context} for context in drawn]
        reply = flagd.ask(encode(flag_set).decode(), asks)
        assert reply.refused is None
        return [one["value"] if one.get("variant") else CODE_DEFAULT for one in reply.answers]

    @EXAMPLES
    @given(cases(), st.lists(contexts, min_size=6, max_size=6))
    def check(case: Case, drawn: list[dict[str, Any]]) -> None:
        compare(ask, case, drawn, int(now().timestamp()))

    check()


@pytest.mark.oracle
def test_the_published_python_cores_serve_overrides_as_they_lie_over_each_other(core: Core) -> None:
    def ask(flag_set: FlagSet, drawn: list[dict[str, Any]]) -> list[object]:
        document = json.loads(encode(flag_set))
        variants = document["flags"]["f"]["variants"]
        kind = KINDS[type(next(iter(variants.values()), False))]
        asks = []
        for context in drawn:
            others = {name: value for name, value in context.items() if name != "targetingKey"}
            asks.append(
                {"key": "f", "type": kind, "targetingKey": context.get("targetingKey"), "attributes": others}
            )
        return [one["value"] if one.get("variant") else CODE_DEFAULT for one in core.ask(document, asks)]

    @EXAMPLES
    @given(cases(), st.lists(contexts, min_size=6, max_size=6))
    def check(case: Case, drawn: list[dict[str, Any]]) -> None:
        compare(ask, case, drawn, NOW, core.generation)

    check()
