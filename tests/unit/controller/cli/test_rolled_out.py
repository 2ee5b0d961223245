"""Which FlagRollout rolls a change out, as `flagstaff diff`, `trace` and `flags` say."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from controller.authoring.plans import rollouts_by_flag
from controller.cli.flag_changes import FlagChanges, as_markdown, as_text
from controller.cli.flag_trace import rollout_text
from controller.cli.flags import lines
from controller.delivery.flag_state import FlagState
from controller.delivery.rollouts import rollouts_of_set
from evaluator.flags.model import Flag, FlagSet, State
from tests.worlds.delivery import WORLDS
from tests.worlds.objects import thing
from tests.worlds.stages import written_by

if TYPE_CHECKING:
    from controller.api.meta import Resource


def rollout(
    name: str, *patterns: str, created: str = "2026-01-02T00:00:00Z", about: str = "production", **status: Any
) -> Resource:
    spec = {"flagSetRef": {"name": about}, "flags": list(patterns), "steps": [{"share": 10}]}
    return thing("FlagRollout", name, spec, status, creationTimestamp=created)


def flag_set(**defaults: str) -> FlagSet:
    variants = MappingProxyType({"on": True, "off": False})
    flags = {key: Flag(key, State.ENABLED, variants, default) for key, default in defaults.items()}
    return FlagSet(MappingProxyType(flags))


def configuration(**meta: Any) -> Resource:
    return thing("FeatureFlagConfiguration", "production-flags", **meta)


def test_of_two_rollouts_of_one_flag_the_older_is_named_and_new_flags_are_in_none() -> None:
    older = rollout("old", "pay*", created="2026-01-01T00:00:00Z")
    unreadable = thing("FlagRollout", "x", {"flagSetRef": {"name": "production"}})
    known = [rollout("all", "*"), older, rollout("elsewhere", "*", about="staging"), unreadable]
    pairs = rollouts_of_set(known, {"production"})
    assert [resource.name for resource, _ in pairs] == ["old", "all"]
    before, after = (
        flag_set(pay="off", cart="off", same="on"),
        flag_set(pay="on", cart="on", same="on", new="on"),
    )
    assert rollouts_by_flag([(rollout.name, spec.flags) for rollout, spec in pairs], before, after) == {
        "cart": "all",
        "pay": "old",
    }


def test_a_comparison_says_what_is_rolled_out_in_steps() -> None:
    changes = FlagChanges("a", "b", (), {"pay": ("state",)}, (), ("~ pay",), in_steps={"pay": "checkout"})
    assert [*as_text(changes)][-1] == ("", "rolled out in steps by FlagRollout checkout: pay")
    assert "rolled out in steps by FlagRollout checkout: pay" in as_markdown(changes)
    many = FlagChanges("a", "b", (), {}, (), (), in_steps={f"f{number:02}": "x" for number in range(30)})
    assert [*as_text(many)][-1][1].endswith("f19 and 10 more")


def test_a_flag_is_traced_to_its_rollout_by_either_name_of_its_set() -> None:
    written = configuration(**written_by("production"))
    known = [rollout("checkout", "pay*")]
    pay, cart = FlagState("pay", None), FlagState("cart", None)
    idle = "FlagRollout checkout rolls its changes out"
    assert rollout_text(known, written, pay) == idle
    assert rollout_text(known, written, cart) is None
    assert rollout_text(known, configuration(), pay) is None
    assert rollout_text([rollout("x", "*", about="production-flags")], configuration(), pay) is not None
    (layer,) = WORLDS["a rollout is at its first step"].state.candidates
    stepping = FlagState("banner", None, candidate=layer)
    assert rollout_text([], written, stepping) == (
        "FlagRollout checkout: step 1/2, 10% of users get the new definition of banner"
    )


def test_the_flags_of_an_evaluator_have_a_line_for_each_that_is_rolled_out() -> None:
    marks = {"flagstaff.dev/rollout": "checkout", "flagstaff.dev/rollout-share": "10"}
    marks["flagstaff.dev/rollout-candidate"] = f"sha256:{'4' * 64}"
    stepping = {"key": "pay", "metadata": {**marks, "flagstaff.dev/rollout-step": "2/4"}}
    held = {"key": "cart", "metadata": {**marks, "flagstaff.dev/rollout-share": "0"}}
    shown = [line for line in lines({"flags": [stepping, held, {"key": "x"}]}) if line.startswith("rollout")]
    assert shown == [
        "rollout   pay: by checkout (sha256:444444444444): step 2/4, 10% of users",
        "rollout   cart: by checkout (sha256:444444444444): nobody gets the new definition",
    ]


def test_the_flags_of_an_evaluator_have_a_line_for_each_that_is_overridden() -> None:
    marks = {"flagstaff.dev/override": "pay-off", "flagstaff.dev/override-reason": "INC-1:\npayments fail"}
    until = {**marks, "flagstaff.dev/override-expires": "2026-12-01T18:00:00Z"}
    served = {"flags": [{"key": "pay", "metadata": until}, {"key": "cart", "metadata": marks}, {"key": "x"}]}
    assert [line for line in lines(served) if line.startswith("override")] == [
        "override  pay: by pay-off until 2026-12-01T18:00:00Z: INC-1: payments fail",
        "override  cart: by pay-off: INC-1: payments fail",
    ]
