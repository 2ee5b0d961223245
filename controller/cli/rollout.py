"""`flagstaff rollout`: show how far a FlagRollout is, and approve, pause, promote or roll it back.

A request is an annotation that names a candidate by its digest, so that it never counts for another one.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from controller.api.flagrollout import PAUSE, RETRY, names_candidate
from controller.cli import plan_rollout
from controller.cli.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.effects import TIMEOUT, add_effect_arguments, follow_effect, is_handled, report, request
from controller.cli.output import DOCUMENTS, add_output_argument, add_watch_argument, document, follow, plain
from controller.cli.printing import OK, PROBLEM, Exit
from controller.delivery.actions import (
    Abort,
    Annotated,
    Approve,
    Effect,
    Promote,
    ResumeCandidate,
    Retry,
    annotation_of,
)
from controller.delivery.state_words import candidate_name, position_text
from evaluator.host.times import precise_timestamp

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from controller.api.meta import Resource
    from controller.cli.connection import ClusterConnection
    from controller.delivery.rollout_state import CandidateState, RolloutState


_STEPS: Final = frozenset({"Progressing", "Paused", "WaitingPromotion"})
_UNDER_WAY: Final = _STEPS | {"Pending", "Promoting"}
"""Phases in which a person may roll back."""
_PROMOTED_FROM: Final = _STEPS | {"Queued", "Pending", "Failed"}
"""Phases in which a person may promote."""


class RefusedRequest(Exception):
    """The request would have no effect; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class AnnotationRequest:
    """Annotations to be set."""

    candidates: tuple[str, ...] = ()
    """The digests of the candidates that it is about; empty: all."""
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    """None removes one. Empty: it is so already."""


def approve(rollout: Resource, state: RolloutState, named: Sequence[str], now: datetime) -> AnnotationRequest:
    """Let the present step end, or the candidate be promoted after the last one. Raises RefusedRequest."""
    # Without steps, the promotion is approved before anybody gets the candidate.
    possible = [
        one
        for one in state.candidates
        if one.layer.phase in _STEPS or one.layer.reason == "WaitingForPromotion"
    ]
    chosen = _choose(state, named, _STEPS | {"Pending"}, "approve", possible)
    waiting = [one for one in chosen if not one.approved]
    actions = [Approve(state.key, one.layer.candidate, one.layer.gate) for one in waiting]
    return _request(rollout, chosen, actions, now)


def promote(rollout: Resource, state: RolloutState, named: Sequence[str], now: datetime) -> AnnotationRequest:
    """Give the candidate to everybody, without the steps that are left. Raises RefusedRequest."""
    chosen = _choose(state, named, _PROMOTED_FROM, "promote")
    return _request(rollout, chosen, [Promote(state.key, one.layer.candidate) for one in chosen], now)


def abort(rollout: Resource, state: RolloutState, named: Sequence[str], now: datetime) -> AnnotationRequest:
    """Give everybody the promoted definitions again. Raises RefusedRequest."""
    chosen = _choose(state, named, _UNDER_WAY, "roll back")
    return _request(rollout, chosen, [Abort(state.key, one.layer.candidate) for one in chosen], now)


def retry(rollout: Resource, state: RolloutState, named: Sequence[str], now: datetime) -> AnnotationRequest:
    """Roll candidates out again that were stopped. Raises RefusedRequest."""
    del rollout
    chosen = _choose(state, named, {"Failed"}, "retry")
    values = [_value(Retry(state.key, one.layer.candidate), now) for one in chosen]
    return AnnotationRequest(_digests(chosen), {RETRY: ",".join(values)})


def pause(rollout: Resource, state: RolloutState, named: Sequence[str], now: datetime) -> AnnotationRequest:
    """Stay at the present step: of the candidates that are named, or of all."""
    del now
    if state.paused or rollout.annotations.get(PAUSE) == "true":
        return AnnotationRequest()
    if not named:
        return AnnotationRequest((), {PAUSE: "true"})
    digests = _digests(_choose(state, named, _UNDER_WAY | {"Queued"}, "pause"))
    return AnnotationRequest(digests, {PAUSE: ",".join(digests)})


def resume(rollout: Resource, state: RolloutState, named: Sequence[str], now: datetime) -> AnnotationRequest:
    """Let a paused rollout advance again, and a candidate that an override interrupted. Raises
    RefusedRequest.
    """
    if state.paused:
        raise RefusedRequest("spec.pause is true; set it to false where the FlagRollout is written")
    paused = rollout.annotations.get(PAUSE, "")
    if paused and not named:
        return AnnotationRequest((), {PAUSE: None})
    if named and paused not in {"", "true"}:
        chosen = _choose(state, named, _UNDER_WAY | {"Queued"}, "resume")
        if any(names_candidate(paused, one.layer.candidate) for one in chosen):
            left = [part for part in paused.split(",") if not _names_one(part, chosen)]
            return AnnotationRequest(_digests(chosen), {PAUSE: ",".join(left) or None})
    interrupted = [one for one in state.candidates if one.layer.reason == "OverrideEnded"]
    if not named and not interrupted:
        return AnnotationRequest()
    chosen = _choose(state, named, _UNDER_WAY, "resume", interrupted)
    return _request(rollout, chosen, [ResumeCandidate(state.key, one.layer.candidate) for one in chosen], now)


REQUESTS: Final[
    Mapping[str, Callable[[Resource, RolloutState, Sequence[str], datetime], AnnotationRequest]]
] = {"approve": approve, "pause": pause, "resume": resume, "promote": promote, "abort": abort, "retry": retry}
"""By verb."""


def _choose(
    state: RolloutState,
    named: Sequence[str],
    phases: Collection[str],
    verb: str,
    among: Sequence[CandidateState] | None = None,
) -> list[CandidateState]:
    """The candidates that are named, or the only one that the verb may be about."""
    if state.suspended:
        raise RefusedRequest("suspended: set spec.suspend to false, or flagstaff resume it")
    known = [one for one in state.candidates if one.layer.phase in phases]
    if among is not None:
        known = [one for one in known if one in among]
    if not named:
        if len(known) == 1:
            return known
        if known:
            listed = ", ".join(candidate_name(one.layer) for one in known)
            raise RefusedRequest(f"which one? name it with --candidate: {listed}")
        raise RefusedRequest(f"nothing to {verb}: {_positions(state)}")
    chosen = []
    for name in named:
        matching = [one for one in state.candidates if names_candidate(name, one.layer.candidate)]
        if not matching:
            raise RefusedRequest(f"there is no candidate {name}: {_positions(state)}")
        if matching[0] not in known:
            phase = matching[0].layer.phase
            raise RefusedRequest(
                f"nothing to {verb}: candidate {candidate_name(matching[0].layer)} is {phase}"
            )
        chosen.append(matching[0])
    return chosen


def _positions(state: RolloutState) -> str:
    if not state.candidates:
        return (
            f"it is {state.phase}, without a candidate"
            if state.phase != "Unknown"
            else "it is not reconciled yet"
        )
    return "; ".join(f"{candidate_name(one.layer)}: {position_text(one.layer)}" for one in state.candidates)


def _request(
    rollout: Resource, chosen: Sequence[CandidateState], actions: Sequence[Annotated], now: datetime
) -> AnnotationRequest:
    """The request that adds to those of the same annotation that are about other candidates."""
    digests = _digests(chosen)
    if not actions:
        return AnnotationRequest(digests)
    name, _ = annotation_of(actions[0])
    others = [part for part in rollout.annotations.get(name, "").split(",") if part]
    kept = [part for part in others if not _names_one(part, chosen)]
    return AnnotationRequest(
        digests, {name: ",".join((*kept[-20:], *(_value(action, now) for action in actions)))}
    )


def _value(action: Annotated, now: datetime) -> str:
    """The value of the annotation. Each value is acted on once, and the same may be asked for again."""
    return f"{annotation_of(action)[1]}/{precise_timestamp(now)}"


def _names_one(part: str, chosen: Sequence[CandidateState]) -> bool:
    return any(names_candidate(part, one.layer.candidate) for one in chosen)


def _digests(chosen: Sequence[CandidateState]) -> tuple[str, ...]:
    return tuple(one.layer.candidate for one in chosen)


_REQUESTS: Final = {
    "approve": "let the present step end, or the candidate be promoted after the last step",
    "pause": "stay at the present step; checks go on, and roll back",
    "resume": "let a paused rollout advance again, or a candidate that an override interrupted",
    "promote": "give the candidate to everybody at once",
    "abort": "roll back: give everybody the promoted definitions",
    "retry": "roll a candidate out again that was stopped",
}
_ENDS: Final = {"promote": frozenset({"Promoted"}), "abort": frozenset({"Aborted"})}
"""By verb, the outcomes that it asks for."""
_BETWEEN: Final = {"promote": {"Promoting"}, "abort": {"RollingBack", "Promoting"}, "retry": {"Failed"}}
"""By verb, the phases of a candidate that are not yet what it asks for."""


def configure_rollout(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs below it."""
    verbs = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    help_ = "show each candidate: step, share, checks and what to do"
    status = verbs.add_parser("status", help=help_, description=f"{help_[:1].upper()}{help_[1:]}.")
    add_output_argument(status, "text", *DOCUMENTS)
    status.set_defaults(run=run_status)
    status.add_argument("name", metavar="FLAGROLLOUT", help="the FlagRollout's name")
    add_cluster_arguments(status)
    shown = [status]
    for name, what in _REQUESTS.items():
        request = verbs.add_parser(name, help=what, description=f"{what[:1].upper()}{what[1:]}.")
        request.set_defaults(run=run_request, output="text")
        request.add_argument("name", metavar="FLAGROLLOUT", help="the FlagRollout's name")
        request.add_argument(
            "--candidate", dest="candidates", action="append", default=[], metavar="DIGEST",
            help="the candidate, by at least 12 digits of its digest (default: the only one that it may be "
            "about); may be repeated",
        )  # fmt: skip
        add_effect_arguments(request)
        add_cluster_arguments(request, timeout=TIMEOUT)
        shown.append(request)
    for verb in shown:
        add_watch_argument(verb, "step, share and checks as they change")
    plan_rollout.configure(
        verbs.add_parser(
            "plan",
            help="print what a change of flags would do",
            description="Print what a change of flags would do: steps, earliest dates, users moved.",
        )
    )


def run_status(options: argparse.Namespace) -> int:
    """0 shown; 1 no such FlagRollout; 3 no cluster."""
    _take_name(options)
    with contextlib.suppress(KeyboardInterrupt):
        run_on_cluster(lambda: _show(options), doing="" if options.watch else "reading the cluster")
    return OK


def run_request(options: argparse.Namespace) -> int:
    """0 in effect, or so already; 1 no such FlagRollout or candidate, it would have no effect, or has none in
    time; 3 no cluster.
    """
    _take_name(options)
    effect = run_on_cluster(lambda: _ask(options), verb="changed")
    code = report(f"FlagRollout/{options.name}", effect, options.timeout)
    return run_status(options) if options.watch and code == OK else code


def _take_name(options: argparse.Namespace) -> None:
    """Take `rollout/NAME` as `NAME`."""
    # Imported here: it takes long.
    from controller.api.kinds import FLAG_ROLLOUT
    from controller.cli.object_rows import own_name

    options.name = own_name(options.name, FLAG_ROLLOUT)


async def _show(options: argparse.Namespace) -> None:
    # Imported here: it takes a second or two.
    from controller.api.kinds import FLAG_ROLLOUT
    from controller.cli.cluster_view import ClusterView, update_view
    from controller.cli.connection import open_connection
    from controller.cli.printing import printable

    async with open_connection(scope_of(options)) as connection, contextlib.AsyncExitStack() as stack:
        view = ClusterView((FLAG_ROLLOUT,), connection.namespace)
        last = await connection.get(FLAG_ROLLOUT, options.name)
        if options.watch:
            await stack.enter_async_context(update_view(connection, view))
            await view.wait_for(FLAG_ROLLOUT.kind)

        async def show() -> str:
            if not options.watch:
                return _text_of(last, options.output)
            rollout = view.objects.get(last.key)
            fault = f"the cluster cannot be read: {view.fault()}; trying again\n" if view.fault() else ""
            gone = f"FlagRollout {options.name} is gone\n"
            return printable(fault) + (gone if rollout is None else _text_of(rollout, options.output))

        await follow(show, partial(view.wait, 60.0), watch=options.watch)


def _text_of(rollout: Resource, form: str) -> str:
    from controller.cli.rollout_view import RolloutRecord, as_record, as_text
    from controller.delivery.rollout_state import rollout_state

    state = rollout_state(rollout)
    if form in DOCUMENTS:
        return document(plain([as_record(state)], RolloutRecord)[0], form)
    return as_text(state)


async def _ask(options: argparse.Namespace) -> Effect:
    from controller.api.kinds import FLAG_ROLLOUT
    from controller.cli.connection import open_connection
    from controller.delivery.rollout_state import rollout_state
    from controller.runtime.clock import now

    async with open_connection(scope_of(options)) as connection:
        name, action = options.name, options.action
        rollout = await connection.find(FLAG_ROLLOUT, connection.namespace, name)
        if (
            rollout is None
            and action == "promote"
            and (effect := await _promote_abandoned(connection, options))
        ):
            return effect
        # Where there is none, `get` says so.
        rollout = rollout or await connection.get(FLAG_ROLLOUT, name)
        before = rollout_state(rollout)
        try:
            asked = REQUESTS[action](rollout, before, options.candidates, now())
        except RefusedRequest as refusal:
            raise Exit(f"FlagRollout/{name}: {refusal}", PROBLEM) from None
        if not asked.annotations:
            return _effect(action, rollout, asked.candidates)
        patch = {"metadata": {"annotations": dict(asked.annotations)}}
        token = await request(connection, FLAG_ROLLOUT, name, patch)
        if not options.wait:
            return Effect(f"{action} is requested")

        async def look() -> Effect:
            seen = await connection.get(FLAG_ROLLOUT, name)
            if not is_handled(seen, token):
                return Effect("its controller has not processed the request yet; does it run?", done=False)
            return _effect(action, seen, asked.candidates, before)

        return await follow_effect(look, options.timeout)


def _effect(
    action: str, rollout: Resource, digests: Sequence[str], before: RolloutState | None = None
) -> Effect:
    """What became of the candidates that a request is about; `before`: the state in which it was made."""
    from controller.delivery.reach import APPROVABLE
    from controller.delivery.rollout_state import rollout_state
    from controller.delivery.state_words import candidate_text

    state = rollout_state(rollout)
    gates = {one.layer.candidate: one.layer.gate for one in before.candidates} if before is not None else {}
    layers = {one.layer.candidate: one.layer for one in state.candidates}
    ended = {outcome.digest: outcome for outcome in reversed(state.history)}
    texts, done, blocked = [], True, False
    for digest in digests or layers:
        if (layer := layers.get(digest)) is not None:
            texts.append(candidate_text(layer).partition(": ")[2])
            waits = action == "approve" and gates.get(digest) == layer.gate and layer.reason in APPROVABLE
            done = done and layer.phase not in _BETWEEN.get(action, ()) and not waits
        elif (outcome := ended.get(digest)) is not None:
            texts.append(f"{', '.join(outcome.flags) or 'the candidate'}: {outcome.outcome}")
            blocked = blocked or (action in _ENDS and outcome.outcome not in _ENDS[action])
        else:
            texts.append("the candidate is gone")
    paused = f"paused for {', '.join(digests)}" if digests else "paused"
    first = {"pause": [paused], "resume": ["resumed"]}.get(action, [])
    return Effect("; ".join((*first, *texts)) or "there is no candidate", done, blocked)


async def _promote_abandoned(connection: ClusterConnection, options: argparse.Namespace) -> Effect | None:
    """Promote what a FlagRollout that is gone holds back; None where it holds nothing back."""
    from controller.api.flagrollout import PROMOTE
    from controller.api.kinds import FEATURE_FLAG_CONFIGURATION
    from controller.cli.effects import read_states

    async def held_back() -> dict[str, list[str]]:
        """The digests of what it holds back, by the name of the object with the flags."""
        read = await read_states(connection, FEATURE_FLAG_CONFIGURATION)
        held: dict[str, list[str]] = {}
        for state in read.states.values():
            for layer in state.candidates:
                if layer.rollout.name == options.name and layer.phase == "Abandoned":
                    held.setdefault(state.key.name, []).append(layer.candidate)
        return held

    async def look() -> Effect:
        names = ", ".join(await held_back())
        if names:
            return Effect(f"is gone, and still holds back flags of {names}", done=False)
        return Effect("is gone: everybody gets what it held back")

    held = await held_back()
    for name, digests in held.items():
        patch = {"metadata": {"annotations": {PROMOTE: ",".join(dict.fromkeys(digests))}}}
        await connection.merge(FEATURE_FLAG_CONFIGURATION, name, patch)
    if not held:
        return None
    return await follow_effect(look, options.timeout) if options.wait else Effect("promote is requested")
