"""What people are told of a state: one sentence a fact, without digests cut short. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api.flagrollout import PROMOTE
from controller.delivery.actions import Action, in_cluster, in_file
from controller.delivery.digests import names_revision, short
from controller.delivery.set_state import (
    CandidateLayer,
    Layer,
    OverrideLayer,
    RemoteLayer,
    Served,
    SetState,
    ToldLayer,
    Verdict,
    Where,
)
from evaluator.host.texts import cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from controller.api.featureflagconfiguration import LaggardStatus
    from controller.api.flagset_status import ProblemStatus

NAMED: Final = 5
"""Most things of a kind that a sentence names; the rest are counted."""
_LONGEST: Final = 64
"""Most characters of a flag's key that a sentence repeats."""
HELD_WORDS: Final = {
    "Aborted": "somebody aborted it",
    "CheckError": "a check could not be made",
    "CheckErrors": "its checks fail to run",
    "CheckFailed": "a check failed",
    "FailureLimit": "too many checks failed",
    "FlagAbsent": "its flags are not in the set",
    "FlagDisabled": "its flags are disabled",
    "Frozen": "a freeze is in force",
    "GuardrailFailed": "a guardrail was crossed",
    "Inconclusive": "its checks have no value, or too few samples",
    "NotServed": "too few evaluators serve it",
    "OutsideWindow": "it waits for its window",
    "OverrideActive": "an override hides it from users",
    "OverrideEnded": "an override hid it and has ended; somebody must resume, abort or promote it",
    "Paused": "somebody paused it",
    "PreRolloutChecks": "a webhook of type pre-rollout has not confirmed it",
    "ProgressDeadlineExceeded": "the step took too long",
    "PromotionNotServed": "the promotion was not served in time",
    "RollbackRequested": "a webhook of type rollback asked for it",
    "Suspended": "the FlagRollout is suspended",
    "WaitingForApproval": "it waits for an approval",
    "WaitingForConfirmation": "a webhook has not confirmed it",
    "WaitingForDate": "it waits for a date",
    "WaitingForPromotion": "it waits for somebody to promote it",
}
"""By the reason of a candidate, why it does not go on, or was stopped."""
_PHASES: Final = {
    "Queued": "waits for other changes to end",
    "Pending": "has not started",
    "Failed": "was stopped",
    "RollingBack": "is rolled back",
    "Promoting": "is promoted",
    "Abandoned": "is held back, and its FlagRollout is gone",
}


def count_text(number: int, word: str) -> str:
    """`1 flag`, `2 flags`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def names_text(names: Sequence[str]) -> str:
    """`a, b and 3 more`; a name is cut at 64 characters."""
    rest = len(names) - NAMED
    listed = ", ".join(cut(name, _LONGEST) for name in names[:NAMED])
    return f"{listed} and {rest} more" if rest > 0 else listed


def users_text(layer: CandidateLayer) -> str:
    """Who gets the newest definitions of a candidate's flags."""
    if layer.users == "everybody":
        return "everybody"
    if layer.users == "nobody":
        return "nobody"
    return "an audience" if layer.share in {"", "audience"} else f"{layer.share} of users"


def position_text(layer: CandidateLayer) -> str:
    """How far a candidate is: `step 1/2, 10% of users`, `was stopped: nobody`."""
    at = f"step {layer.step}" if layer.step and layer.users == "some" else _PHASES.get(layer.phase, "")
    return ", ".join(filter(None, (at, users_text(layer))))


def candidate_name(layer: CandidateLayer) -> str:
    """`444444444444 (new-checkout)`: what a person names it by, and its flags."""
    digits = short(layer.candidate.rpartition(":")[2])
    return f"{digits} ({names_text(layer.flags)})"


def cause_text(layer: CandidateLayer) -> str:
    """Why a candidate does not go on; empty: nothing holds it."""
    words = HELD_WORDS.get(layer.reason, layer.reason)
    return f"{words}: {layer.message}" if words and layer.message else words or layer.message


def candidate_text(layer: CandidateLayer) -> str:
    """A candidate in one sentence: `FlagRollout checkout: step 1/2, 10% of users get the new definition of
    new-checkout`.
    """
    flags = f"the new definition of {names_text(layer.flags) or 'its flags'}"
    name = f"FlagRollout {layer.rollout.name}"
    if layer.phase == "Abandoned":
        digits = short(layer.candidate.rpartition(":")[2])
        until = f"until a change, or until the annotation {PROMOTE} names {digits}"
        return f"{name} is gone: nobody gets {flags} {until}"
    verb = "get" if layer.users == "some" and layer.share.endswith("%") else "gets"
    if layer.reason == "OverrideActive":
        verb = "would get"
    if layer.users == "everybody":
        # Whether everybody does is told by those who count evaluators.
        verb = "is to get"
    why = cause_text(layer)
    text = f"{name}: {position_text(layer)} {verb} {flags}"
    return f"{text}; {why}" if why else text


def override_text(layer: OverrideLayer) -> str:
    """An override in one sentence."""
    state = "disabled" if layer.variant is None else f'"{layer.variant}"'
    some = " for an audience" if layer.audience else ""
    until = f" until {layer.until}" if layer.until else ""
    name = layer.override.name
    who = name if name.startswith("--") else f"FlagOverride {name}"
    return f'{who}: flag "{layer.flag}" is {state}{some}{until}: {layer.reason}'


def end_text(layer: OverrideLayer, candidates: Iterable[CandidateLayer]) -> str:
    """What comes back when an override ends: `when it ends: default "on"`; empty: it is not known."""
    hidden = next((candidate for candidate in candidates if layer.flag in candidate.flags), None)
    back = layer.hides if hidden is None else f"FlagRollout {hidden.rollout.name}, {position_text(hidden)}"
    return f"when it ends: {back}" if back else ""


def remote_text(layer: RemoteLayer) -> str:
    """The flags of a remote provider in one sentence."""
    at = f" at {layer.version}" if layer.version else ""
    stale = f", not confirmed since {layer.stale_since}" if layer.stale_since else ""
    wrong = f": {layer.message}" if layer.message else ""
    return f"{count_text(layer.flags, 'flag')} of {layer.name}{at}{stale}{wrong}"


def layer_text(layer: Layer) -> str:
    """A layer in one sentence."""
    if isinstance(layer, CandidateLayer):
        return candidate_text(layer)
    if isinstance(layer, OverrideLayer):
        return override_text(layer)
    return layer.message if isinstance(layer, ToldLayer) else remote_text(layer)


def layers_text(layers: Iterable[Layer]) -> str:
    """Layers in one line."""
    texts = [layer_text(layer) for layer in layers]
    rest = [f"{len(texts) - NAMED} more"] if len(texts) > NAMED else []
    return "; ".join((*texts[:NAMED], *rest))


def brief_text(state: SetState) -> str:
    """The layers that keep flags from users, for a cell of a table: `rollout checkout 1/2 10%`."""
    return names_text([*map(brief_layer, state.withheld)])


def brief_layer(layer: CandidateLayer | OverrideLayer | ToldLayer) -> str:
    """One of them: `rollout checkout 1/2 10%`, `override checkout.banner`."""
    if isinstance(layer, ToldLayer):
        return layer.message
    if isinstance(layer, OverrideLayer):
        return f"override {layer.override.name}"
    at = f"{layer.step} {layer.share}" if layer.users == "some" else layer.phase or "held"
    return f"rollout {layer.rollout.name} {at}"


def served_text(served: Served, what: str) -> str:
    """How many evaluators serve `what`."""
    if served.total is None:
        return f"nobody reports who serves {what}"
    if not served.total:
        return f"no evaluator that sends receipts is subscribed to {what}"
    return f"{served.count} of {served.total} evaluators serve {what}"


def served_ratio(served: Served) -> str:
    """`2/3`; `-` where it is not known."""
    return "-" if served.total is None else f"{served.count}/{served.total}"


def laggard_text(laggard: LaggardStatus) -> str:
    """`shop/checkout-1 on node-3: silent since …, served main@sha1:…`."""
    node = f" on {laggard.node}" if laggard.node else ""
    serves, since = laggard.serves or "nothing", laggard.since or "an unknown time"
    if laggard.silent:
        return f"{laggard.name}{node}: silent since {since}, served {serves}"
    if laggard.reason:
        return f"{laggard.name}{node}: keeps {serves} since {since}: {laggard.reason}"
    return f"{laggard.name}{node}: serves {serves} (behind since {since})"


def laggard_texts(served: Served) -> tuple[str, ...]:
    """A line for each named laggard, and how many more there are."""
    lines = [laggard_text(laggard) for laggard in served.laggards[: served.lagging]]
    rest = served.lagging - len(lines)
    return (*lines, f"and {rest} more") if rest > 0 and lines else tuple(lines)


def meanwhile_text(state: SetState) -> str:
    """What is served while the newest revision is not, or not whole."""
    if not state.revision:
        return "nothing is served yet"
    if state.newest.verdict is Verdict.PARTLY and names_revision(state.newest.revision, state.revision):
        return f"all other flags are served as in {state.revision}"
    return f"{state.revision} is served meanwhile"


def advice(action: Action, where: Where) -> tuple[str, bool]:
    """(what a person does where the objects are, whether that is a command to type)."""
    command = in_cluster(action) if where is Where.CLUSTER else ""
    return (command, True) if command else (in_file(action), False)


def problem_text(problem: ProblemStatus) -> str:
    """`flags.json:3:5: error: …`."""
    place = ":".join(str(part) for part in (problem.file, problem.line, problem.column) if part)
    return f"{place}{': ' if place else ''}{problem.severity}: {problem.message}"
