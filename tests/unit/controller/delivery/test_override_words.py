"""What an override, and its end, has come to, by the status of the objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from controller.delivery.actions import Effect
from controller.delivery.progress_words import effect_of, flag_text, served_of
from evaluator.flags.accept import Progress, effective
from evaluator.flags.overrides import Override
from tests.rollout_sets import NEW, PLAIN, flags, rolled_out
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from controller.api.meta import Resource

OVERRIDE = Override("off", "banner", "off", "INC-1", 1_796_148_000)
HIDES = 'default variant "on"'


def target(digest: str, served: str = "2/2", **status: Any) -> Resource:
    counts = {"served": served, "total": int(served.partition("/")[2])} if served else {}
    found = {"digest": digest, **counts, **status}
    return thing("FeatureFlagConfiguration", "checkout", status=found)


def override(state: str | None = "Active", generation: int = 1, message: str = "it is so") -> Resource:
    ready = {"type": "Ready", "status": "True", "reason": state, "message": message}
    status = {"observedGeneration": generation, "state": state, "hides": HIDES, "conditions": [ready]}
    return thing("FlagOverride", "off", status=status if state else {})


BEFORE = {target("a").key: "a"}
LAGGARD = {"name": "shop/web-1", "serves": "main@sha1:1", "since": "12:00"}


@pytest.mark.parametrize(
    ("overridden", "target_now", "effect"),
    [
        (
            override(None),
            target("a"),
            Effect("no controller reports on it: the proxy applies it", done=False),
        ),
        (
            override(generation=0),
            target("a"),
            Effect("no controller reports on it: the proxy applies it", done=False),
        ),
        (override("UnknownFlag"), target("a"), Effect("UnknownFlag: it is so", done=False, blocked=True)),
        (override("Hidden"), target("b"), Effect("Hidden: it is so", done=False, blocked=True)),
        (
            override(),
            target("a"),
            Effect(f"it is so; no controller reports who serves it yet; when it ends: {HIDES}", done=False),
        ),
        (
            override(),
            target("b", "1/2", laggards=[LAGGARD]),
            Effect(
                f"it is so; 1 of 2 evaluators serve it; when it ends: {HIDES}",
                done=False,
                waits_for=("shop/web-1: serves main@sha1:1 (behind since 12:00)",),
            ),
        ),
        (override(), target("b"), Effect(f"it is so; 2 of 2 evaluators serve it; when it ends: {HIDES}")),
        (
            override(),
            target("b", ""),
            Effect(f"it is so; no evaluator that sends receipts is subscribed; when it ends: {HIDES}"),
        ),
    ],
)
def test_an_override_has_come_as_far_as_the_objects_say(
    overridden: Resource, target_now: Resource, effect: Effect
) -> None:
    assert effect_of(overridden, [target_now], BEFORE) == effect


def test_nobody_knows_who_serves_objects_that_cannot_be_read() -> None:
    assert not served_of([], {}).done


def test_a_flag_is_said_to_be_its_definition_its_rollout_or_another_override() -> None:
    desired = flags(NEW, PLAIN)
    assert flag_text("banner", desired) == 'flag "banner" now: default variant "on"'
    assert flag_text("gone", desired) == 'flag "gone" now: no such flag'
    overridden = effective(desired, Progress(overrides=(OVERRIDE,)))
    assert flag_text("banner", overridden) == (
        'flag "banner" is still under FlagOverride off ("off" until 2026-12-01T18:00:00Z)'
    )
    assert flag_text("new-checkout", rolled_out(5)) == (
        'flag "new-checkout" now: default variant "on", in step 2/4 of FlagRollout checkout (5 % of users)'
    )
