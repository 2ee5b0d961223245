"""A composed set says which flags a rule needed, so that an explanation has their traces, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.flagsets.compose import Composition, compose, provenance_of
from evaluator.resolving.explain import explain
from evaluator.resolving.resolve import compile_flag_set

if TYPE_CHECKING:
    from evaluator.flags.model import FlagSet

CART = """\
flags:
  cart:
    state: ENABLED
    variants: {on: true, off: false}
    defaultVariant: off
    targeting: {if: [{"==": [{var: tier}, gold]}, on]}
"""
PAY = """\
flags:
  pay:
    state: ENABLED
    variants: {on: true, off: false}
    defaultVariant: off
    targeting: {if: [{flag: [cart, on]}, on]}
"""


def composed(previous: FlagSet | None = None, **files: str) -> Composition:
    tree = {f"{name}.yaml": text.encode() for name, text in files.items()}
    return compose(tree, ["*.yaml"], provenance=provenance_of("main@sha1:1"), previous=previous)


def test_an_explanation_shows_the_trace_of_the_prerequisite() -> None:
    made = composed(cart=CART, pay=PAY).flag_set
    assert made.flags["pay"].metadata == {"flagstaff.dev/prerequisites": '["cart"]'}
    shown = explain(compile_flag_set(made), "pay", None, {"tier": "gold"}, 0)
    steps = [str(step) for step in shown.steps]
    assert steps[0] == 'prerequisite "cart", targeting.if[0].==[0].var: "tier" is "gold"'
    assert 'prerequisite "cart", flag: TARGETING_MATCH: a variant, "on"' in steps
    assert steps[-1] == 'flag: TARGETING_MATCH: a variant, "on"'
    assert shown.steps[0].document()["prerequisite"] == "cart"


def test_a_flag_keeps_what_it_was_when_the_flag_that_it_needs_is_deleted() -> None:
    before = composed(cart=CART, pay=PAY).flag_set
    after = composed(before, pay=PAY)
    assert (after.held, after.changed.removed) == (("pay",), ("cart",))
    assert after.flag_set.flags["pay"].targeting == before.flags["pay"].targeting
    assert "pay.yaml:6" in str(after.problems[0])
