"""Reports overrides in force and rollouts under way to people, and by conditions and Events of the objects
with the flags. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from controller.api.featureflagconfiguration import ConfigurationStatus
from controller.api.flagoverride import ACTIVE, HIDDEN, FlagOverrideStatus
from controller.api.flagrollout import KIND
from controller.api.meta import ObjectKey, Resource
from controller.api.status import OVERRIDE_ACTIVE, READY, ROLLOUT_ACTIVE, TRUE, Condition, Status
from controller.delivery.actions import Effect
from controller.delivery.rollout_state import layer_of_entry
from controller.delivery.state_words import candidate_text, laggard_text, names_text
from controller.runtime.event import Occurrence
from evaluator.flags.model import ABSENT, Flag, FlagSet, State
from evaluator.flags.overrides import Incompatibility, Override, layers_of
from evaluator.flags.rollouts import ROLLOUT_KEY, ROLLOUT_SHARE_KEY, ROLLOUT_STEP_KEY
from evaluator.flags.suggestions import did_you_mean
from evaluator.flags.text import visible
from evaluator.host.times import timestamp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from controller.api.rollout_status import ServedRollout
    from evaluator.flags.accept import Progress


_NAMED: Final = 10
"""Most variants that a message lists."""
_SETS: Final = 3
"""Most sets that a message lists."""
_LONGEST: Final = 64
"""Most characters of a name in a message."""


def quote(name: str) -> str:
    """Return a name of somebody's choice as it can be shown."""
    return f'"{visible(name[:_LONGEST])}"'


def value_text(override: Override) -> str:
    """What a flag is under an override: `"off"`, `"off" for an audience`, `disabled`."""
    if override.variant is None:
        return "disabled"
    return quote(override.variant) + ("" if override.audience is ABSENT else " for an audience")


def until(override: Override) -> str:
    """Return when an override ends, as `until 2026-01-31T12:00:00Z`."""
    if override.expires is None:
        return "without an end"
    return f"until {timestamp(datetime.fromtimestamp(override.expires, UTC))}"


def layers_above(layers: Sequence[Override], name: str) -> tuple[Override, ...]:
    """Return those of the layers of a flag, the latest first, that hide this one from everybody."""
    place = next((place for place, layer in enumerate(layers) if layer.name == name), 0)
    return tuple(layer for layer in layers[:place] if layer.audience is ABSENT)


def elsewhere_text(sets: Sequence[str]) -> str:
    """Say where another set's flag is served in place of an overridden one; empty: nowhere."""
    if not sets:
        return ""
    more = f" and {len(sets) - _SETS} more" if len(sets) > _SETS else ""
    names = ", ".join(name or "another set" for name in sets[:_SETS])
    return f"hidden in evaluators that also follow {names}{more}, whose flag comes first"


def hidden_text(override: Override, above: Iterable[Override]) -> str:
    """Say that later overrides cover all users of this one."""
    last = max(above, key=lambda layer: (layer.expires is None, layer.expires or 0))
    return (
        f"FlagOverride {last.name} is later and covers everybody: flag {quote(override.flag)} is "
        f"{value_text(last)} {until(last)}"
    )


def active_text(override: Override, layers: Sequence[Override]) -> str:
    """Say that an override is in force, over which of the layers of its flag, and below which."""
    place = next((place for place, layer in enumerate(layers) if layer.name == override.name), 0)
    text = f"flag {quote(override.flag)} is {value_text(override)}: {override.reason}"
    for word, others in (("over", layers[place + 1 :]), ("below", layers[:place])):
        if others:
            text += f"; {word} " + ", ".join(_layer_text(layer) for layer in others)
    return text


def _layer_text(layer: Override) -> str:
    return f"FlagOverride {layer.name} ({value_text(layer)} {until(layer)})"


def override_texts(flag_set: FlagSet, progress: Progress) -> tuple[str, ...]:
    """A sentence for each override in force in a served set that a user may get, sorted by the flag, the
    latest first.
    """
    asked = {override.name for override in progress.overrides}
    texts = []
    for key in sorted({override.flag for override in progress.overrides}):
        flag = flag_set.flags.get(key)
        layers = () if flag is None else layers_of(flag)[1]
        texts += [
            f'flag "{key}" is {value_text(layer)} {until(layer)} by FlagOverride {layer.name}: {layer.reason}'
            for layer in layers
            if layer.name in asked and not layers_above(layers, layer.name)
        ]
    return tuple(texts)


def unfit_text(unfit: Incompatibility, override: Override, flag: Flag | None, keys: Iterable[str]) -> str:
    """Say why an override is not in force, and what to do. `keys`: of the flags of the set."""
    name = quote(override.flag)
    match unfit:
        case "UnknownFlag":
            return f"the set has no flag {name}{did_you_mean(override.flag, keys)}"
        case "UnknownVariant":
            variants, variant = () if flag is None else tuple(flag.variants), override.variant or ""
            near = did_you_mean(variant, variants)
            return f"flag {name} has no variant {quote(variant)}{near}; it has {_list_text(variants)}"
        case "InvalidAudience":
            return (
                "spec.audience has an operator or a $ref that does not exist, or any $ref for the flag of a "
                "remote provider; correct it"
            )
        case "RuleTooLarge":
            return f"the rule of flag {name} or spec.audience is too large; use disabled: true"


def definition_text(flag: Flag | None) -> str:
    """What a definition says, in short: its state, its default variant, whether it has a rule, and how far it
    is rolled out.
    """
    if flag is None:
        return "no such flag"
    if flag.state is State.DISABLED:
        return "disabled"
    default = (
        "no default variant"
        if flag.default_variant is None
        else f"default variant {quote(flag.default_variant)}"
    )
    if ROLLOUT_KEY not in flag.metadata:
        return default if flag.targeting in (ABSENT, {}) else f"{default}, with a rule"
    rollout = f"FlagRollout {flag.metadata[ROLLOUT_KEY]}"
    if ROLLOUT_STEP_KEY not in flag.metadata:
        return f"{default}, held back by {rollout}"
    return (
        f"{default}, in step {flag.metadata[ROLLOUT_STEP_KEY]} of {rollout} "
        f"({flag.metadata[ROLLOUT_SHARE_KEY]} % of users)"
    )


def flag_text(key: str, flag_set: FlagSet) -> str:
    """Say what a flag of a delivered set is now: what an override makes of it, or its definition."""
    flag = flag_set.flags.get(key)
    definition, layers = (None, ()) if flag is None else layers_of(flag)
    if layers:
        return f"flag {quote(key)} is still under {_layer_text(layers[0])}"
    return f"flag {quote(key)} now: {definition_text(definition)}"


def _list_text(names: Sequence[str]) -> str:
    quoted = [quote(name) for name in names[:_NAMED]]
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return ", ".join(quoted + more)


def effect_of(
    override: Resource, targets: Sequence[Resource], before: Mapping[ObjectKey, str | None]
) -> Effect:
    """Return how far an override has come that was written. `targets` are the objects with its flag, and
    `before` the digests that their status had when it was written.
    """
    status = FlagOverrideStatus.of(override)
    if status.observed_generation != override.generation or status.state is None:
        return Effect("no controller reports on it: the proxy applies it", done=False)
    ready = status.condition(READY)
    if status.state != ACTIVE:
        return Effect(f"{status.state}: {ready.message}", done=False, blocked=True)
    served = served_of(targets, before)
    back = f"; when it ends: {status.hides}" if status.hides else ""
    return replace(served, message=f"{ready.message}; {served.message}{back}")


def digests_of(targets: Iterable[Resource]) -> dict[ObjectKey, str | None]:
    """Return the digests that the status of objects with flags has."""
    return {target.key: ConfigurationStatus.of(target).digest for target in targets}


def end_of_idle(override: Resource) -> Effect | None:
    """Return what the end of an override that was not in force has come to; None: it was in force."""
    state = FlagOverrideStatus.of(override).state
    return None if state in (ACTIVE, HIDDEN, None) else Effect(f"it was not in force: {state}")


def served_of(targets: Sequence[Resource], before: Mapping[ObjectKey, str | None]) -> Effect:
    """Return who serves what changed since the objects had the digests `before`."""
    statuses = [ConfigurationStatus.of(target) for target in targets]
    changed = all(
        status.digest != before.get(target.key) for status, target in zip(statuses, targets, strict=True)
    )
    if not targets or not changed:
        return Effect("no controller reports who serves it yet", done=False)
    total, served = sum(one.total or 0 for one in statuses), sum(one.served_by or 0 for one in statuses)
    if not total:
        return Effect("no evaluator that sends receipts is subscribed")
    laggards = [laggard_text(laggard) for status in statuses for laggard in status.laggards or ()]
    message = f"{served} of {total} evaluators serve it"
    return Effect(message, done=served >= total, waits_for=tuple(laggards[: total - served]))


ROLLED_OUT: Final = "FlagsRolledOut"
ABANDONED: Final = "RolloutAbandoned"
REASON: Final = "FlagsOverridden"
STARTED: Final = "OverrideActive"
ENDED: Final = "OverrideEnded"
_LISTED: Final = 5


def override_condition(texts: Sequence[str]) -> tuple[Condition, ...]:
    """Return the condition for overrides in force, each as `override_texts` describes it."""
    if not texts:
        return ()
    more = [f"{len(texts) - _LISTED} more"] if len(texts) > _LISTED else []
    return (Condition(OVERRIDE_ACTIVE, TRUE, REASON, "; ".join((*texts[:_LISTED], *more))),)


def override_events(before: Status, details: Iterable[Condition]) -> tuple[Occurrence, ...]:
    """Return an Event if the condition differs from the one in `before`."""
    known = before.condition(OVERRIDE_ACTIVE)
    now = next((detail for detail in details if detail.type == OVERRIDE_ACTIVE), None)
    if now is not None:
        # The status holds what was written, which may be shortened.
        same = known.message and now.message.startswith(known.message.removesuffix("…"))
        return () if same else (Occurrence(STARTED, now.message, warning=True, version=known.message),)
    if not known.message:
        return ()
    return (Occurrence(ENDED, f"not in force any more: {known.message}", version=known.since, ends=True),)


def rollout_condition(
    served: Iterable[ServedRollout],
    notes: Iterable[str] = (),
    waits: str = "",
    overridden: Collection[str] = (),
) -> tuple[Condition, ...]:
    """Return the condition for candidates that are not served to everybody as Git has them; where a change
    `waits` for candidates, for those that have no flag to be served, too. `notes` end the message.
    `overridden`: the keys of flags under an override.
    """
    shown = [entry for entry in served if entry.phase != "Idle" or (waits and entry.flags)]
    if not shown:
        return ()
    gone = any(entry.phase == "Abandoned" for entry in shown)
    more = [f"{len(shown) - _LISTED} more"] if len(shown) > _LISTED else []
    texts = (*(_sentence(entry, overridden) for entry in shown[:_LISTED]), *more)
    message = ". ".join(filter(None, ("; ".join(texts), waits, *notes)))
    return (Condition(ROLLOUT_ACTIVE, TRUE, ABANDONED if gone else ROLLED_OUT, message),)


def _sentence(entry: ServedRollout, overridden: Collection[str]) -> str:
    if entry.phase == "Idle":
        flags = names_text(sorted(entry.flags))
        return f"FlagRollout {entry.name} is at a step of {flags}, absent or disabled in Git"
    # The namespace is that of the object which has the condition.
    layer = layer_of_entry(ObjectKey(KIND, "", entry.name), entry)
    hidden = any(key in overridden for key in entry.flags)
    return candidate_text(replace(layer, reason="OverrideActive") if hidden else layer)


def baseline_text(keys: Sequence[str]) -> str:
    """Return what users outside of a step get of flags that were disabled before; empty where there are
    none.
    """
    if not keys:
        return ""
    flags = _flag_text(keys[0]) if len(keys) == 1 else f"{len(keys)} flags"
    return f"Users outside the step get the application's default of {flags}, disabled until this change"


def _flag_text(key: str) -> str:
    return f'flag "{visible(key[:_LONGEST])}"'


def abandonment_events(before: Status, details: Iterable[Condition]) -> tuple[Occurrence, ...]:
    """Return a warning if a FlagRollout was deleted while its flags differed; it reported the rest itself."""
    known = before.condition(ROLLOUT_ACTIVE)
    now = next((detail for detail in details if detail.type == ROLLOUT_ACTIVE), None)
    if now is None or now.reason != ABANDONED or known.reason == ABANDONED:
        return ()
    return (Occurrence(ABANDONED, now.message, warning=True, version=known.since),)
