"""The state of a flag set or a FlagRollout for the commits that it is about, and of a flag set for its pull
request. Pure.

A commit is pending until everybody gets its flags. Only what the flag set has now can come to that: a commit
that another one replaces before has failed. The present commit, and earlier ones that may succeed with it as
they have the same content, are remembered as `COMMIT STATE HASH`, between semicolons.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.api import flagrollout, flagset, flagshard
from controller.api.featureflagconfiguration import MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.api.flagset_status import FlagSetStatus
from controller.api.kinds import status_of
from controller.api.meta import CHANGES, COMPARED_WITH, ObjectKey, Resource
from controller.api.status import OVERRIDE_ACTIVE, PROPAGATED, READY, ROLLOUT_ACTIVE, TRUE, UNKNOWN
from controller.authoring.plan_words import comment
from controller.authoring.plans import Beside, plan_flags
from controller.delivery.delivered import delivery_of
from controller.delivery.overrides import FLAG_KINDS
from controller.delivery.promotion import newest_revision, promotion_of, stopped_of_set, writers_of
from controller.delivery.rollouts import rollouts_for, rollouts_naming
from controller.events import alert_messages
from controller.events.alert_stage import BY_COMPARED
from controller.events.commit_pages import commit_in
from evaluator.flags.model import REVISION_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from controller.api.flagprovider import Message
    from controller.api.status import Status
    from controller.events.alert_selection import Alert
    from controller.runtime.cache import Cache
    from evaluator.flags.model import FlagSet

COMMITS: Final = frozenset({"azuredevops", "bitbucket", "gitea", "github", "gitlab"})
"""Types of providers that keep statuses of commits."""
CHANGE_REQUESTS: Final = frozenset(
    {
        "azuredevopspullrequestcomment",
        "bitbucketpullrequestcomment",
        "giteapullrequestcomment",
        "githubpullrequestcomment",
        "gitlabmergerequestcomment",
    }
)
"""Types of providers that keep one comment on a pull request."""
FOLLOWING_STATUS: Final = COMMITS | CHANGE_REQUESTS
"""Types that follow the status of flag sets and not Events."""
CHANGE_REQUEST: Final = "event.toolkit.fluxcd.io/change_request"
"""Flux's annotation: the number of a pull request."""
PROMOTED: Final = "Promoted"
_STATES: Final = {"promoted": PROMOTED, "stopped": "RolledBack", "replaced": "RolloutSuperseded"}
"""The reason of a message, by what became of a commit."""
_MOST_OPEN: Final = 16
"""Most commits of one FlagRollout that are remembered."""


def commit_states(
    objects: Cache, thing: Resource, before: str, alert: Alert, now: datetime
) -> tuple[list[Message], str]:
    """Return (new statuses of commits, new Reported). `before`: the last Reported."""
    if thing.key.kind == flagrollout.KIND:
        return _rollout_states(objects, thing, before, alert, now)
    if thing.key.kind != flagset.KIND:
        return [], before
    return _flag_set_states(thing, before, stopped_of_set(objects, thing, now), alert, now)


def followed_by_commits(objects: Cache, changed: Resource) -> list[Resource]:
    """Return the FlagSets and FlagRollouts whose statuses of commits a change of an object may change."""
    kind, namespace = changed.key.kind, changed.namespace
    if kind == flagset.KIND:
        names = {changed.name, flagset.target_name(changed)}
        return [
            changed,
            *(one for name in sorted(names) for one in rollouts_naming(objects, namespace, name)),
        ]
    if kind == flagrollout.KIND:
        return [changed, *writers_of(objects, changed)]
    return rollouts_for(objects, changed) if kind in FLAG_KINDS else []


def ended_states(thing: Resource, before: str, alert: Alert, now: datetime) -> Iterator[Message]:
    """Yield the last statuses of commits that a FlagSet or FlagRollout was about, which is deleted."""
    for commit, known in _open_commits(before).items():
        if known.startswith("pending"):
            text = f"{thing.key.kind} {thing.name} was deleted before everybody got this commit"
            yield _commit_message(thing, f"@sha1:{commit}", "Deleted", text, alert, now)


def _rollout_states(
    objects: Cache, rollout: Resource, before: str, alert: Alert, now: datetime
) -> tuple[list[Message], str]:
    known, newest = _open_commits(before), newest_revision(objects, rollout)
    if not commit_in(newest):
        return [], before
    earlier = {commit for commit, state in known.items() if state.startswith("pending ")}
    messages, after = [], {}
    for revision in (newest, *(f"@sha1:{one}" for one in known if one in earlier - {commit_in(newest)})):
        promotion = promotion_of(objects, rollout, revision, now)
        reason = _STATES.get(promotion.state, "RolloutActive")
        message = _commit_message(rollout, revision, reason, promotion.message, alert, now)
        state, commit = state_name(message), commit_in(revision)
        entry = f"{state} {_short_hash(promotion.message)}" if state != "success" else "success -"
        if known.get(commit) != entry:
            messages.append(message)
        if revision == newest or state == "pending":
            after[commit] = entry
    return messages, _reported(after)


def _open_commits(reported: str) -> dict[str, str]:
    pairs = (entry.partition(" ") for entry in reported.split(";") if entry)
    return {commit: state for commit, _, state in pairs}


def _reported(open_commits: Mapping[str, str]) -> str:
    listed = [f"{commit} {entry}" for commit, entry in open_commits.items()]
    return ";".join(listed[:_MOST_OPEN])


def _commit_message(
    thing: Resource, revision: str, reason: str, words: str, alert: Alert, now: datetime
) -> Message:
    failing = {} if reason in {PROMOTED, PROPAGATED, "RolloutActive"} else _FAILING
    identity = f"{revision.rpartition('@')[2]} {reason} {words} {thing.resource_version}"
    given = {"reason": reason, "message": words[:2_000], **failing}
    message = alert_messages.of_state(thing, alert, identity, now, **given)
    return message.model_copy(update={"metadata": message.metadata | {REVISION_KEY: revision}})


def _flag_set_states(
    flag_set: Resource, before: str, stopped: str, alert: Alert, now: datetime
) -> tuple[list[Message], str]:
    known, commit = _open_commits(before), commit_in(status_of(flag_set).content[0])
    if not commit:
        return [], before
    message, entry = _flag_set_state(flag_set, known.get(commit, ""), stopped, alert, now)
    messages, after = [message] if known.get(commit) != entry else [], {commit: entry}
    for earlier, state in known.items():
        if earlier == commit or not state.startswith("pending"):
            continue
        reason, words = _end_of_earlier(flag_set, earlier, stopped)
        if reason:
            revision = f"@sha1:{earlier}"
            messages.append(_commit_message(flag_set, revision, reason, words, alert, now))
        else:
            after[earlier] = state
    return messages, _reported(after)


def _end_of_earlier(flag_set: Resource, commit: str, stopped: str) -> tuple[str, str]:
    """Return (reason, words) of what became of a commit that the FlagSet had before; empty: still pending."""
    status = FlagSetStatus.of(flag_set)
    if not status.conditions_of(PROPAGATED):
        # Nobody knows what evaluators serve.
        return "", ""
    digest = next((one.digest for one in status.history if commit_in(one.revision) == commit), None)
    if digest is None or digest != status.digest:
        return "Superseded", f"{status.content[0]} has replaced it before everybody was known to have it"
    reason, words = _served(status, stopped)
    return ("", "") if reason == "Applied" else (reason, words)


def _served(state: Status, stopped: str) -> tuple[str, str]:
    """Return (reason, words) of what a FlagSet has applied; `stopped`: which changes of it were, in words."""
    propagated = state.condition(PROPAGATED)
    if stopped:
        return "RolledBack", stopped
    if layers := _layers(state):
        return "Applied", layers
    if propagated.status in {TRUE, UNKNOWN}:
        return PROPAGATED, propagated.message
    return "Applied", state.condition(READY).message


def _layers(state: Status) -> str:
    """Return what keeps users from having the revision although evaluators serve it, in words."""
    types = (ROLLOUT_ACTIVE, OVERRIDE_ACTIVE)
    return "; ".join(one.message for type_ in types for one in state.conditions_of(type_))


def _flag_set_state(
    thing: Resource, before: str, stopped: str, alert: Alert, now: datetime
) -> tuple[Message, str]:
    """Return (status of the present commit, what is remembered of it). `before`: what was."""
    state = status_of(thing)
    ready = state.condition(READY)
    reason, words = state.failure or "Applied", ready.message
    if state.is_ready:
        reason, words = _served(state, stopped)
    rolled_back = state.is_ready and bool(stopped)
    # After a step or an override the same state is news again.
    since_layers = before if before.startswith("pending ") else ""
    identity = f"{state.content[0]} {reason} {words} {ready.since} {since_layers}"
    fields = _fields(thing, reason, words) | (_FAILING if rolled_back else {})
    message = alert_messages.of_state(thing, alert, identity, now, **fields)
    after = state_name(message)
    if rolled_back or (state.is_ready and _layers(state)):
        # Each step is told.
        return message, f"{after} {_short_hash(words)}"
    # A revision that all subscribers served stays successful while new ones subscribe.
    return message, before if (before, after) == ("success", "pending") else after


def state_name(message: Message) -> str:
    """Return `failure`, `pending` until every user is served, then `success`."""
    if message.state == "failing":
        return "failure"
    return "success" if message.reason in {PROPAGATED, PROMOTED} else "pending"


def change_request_state(
    thing: Resource, base: Resource | None, alert: Alert, now: datetime
) -> tuple[Message, str] | None:
    """Return (message, new Reported); None without a pull request, or while the flag set is in progress."""
    number, status = change_request_number(thing), FlagSetStatus.of(thing)
    failing, words = status.failure, status.condition(READY).message
    if thing.key.kind != flagset.KIND or not number or not (failing or status.is_ready):
        return None
    other = ("", "") if base is None else (base.resource_version, str(FlagSetStatus.of(base).digest))
    facts = (number, failing, words, *status.content, str(status.digest), other[1])
    kept = f"{number} {_short_hash(chr(10).join(facts))}"
    identity = f"{kept} {thing.resource_version} {other[0]}"
    given = _fields(thing, failing or "Applied", words)
    message = alert_messages.of_state(thing, alert, identity, now, **given)
    return message.model_copy(update={"metadata": message.metadata | {CHANGE_REQUEST: number}}), kept


def change_request_number(thing: Resource) -> str:
    """Return the number of a flag set's pull request, of annotation or revision; empty: none."""
    number = thing.annotations.get(CHANGE_REQUEST)
    if number is not None:
        return number if re.match(r"^[0-9]{1,12}$", number) else ""
    revision = status_of(thing).content[0]
    match = re.match(r"^refs/(?:pull|merge-requests)/([0-9]{1,12})/(?:head|merge)@", revision)
    return match[1] if match else ""


def base_of(objects: Cache, thing: Resource) -> Resource | None:
    """Return the flag set to compare with."""
    name = thing.annotations.get(COMPARED_WITH, "")
    return objects.get(ObjectKey(flagset.KIND, thing.namespace, name))


def sets_compared_with(objects: Cache, base: Resource) -> list[Resource]:
    """Return the flag sets that are compared with one."""
    return objects.find(BY_COMPARED, base.namespace, base.name)


class ComparedSets(NamedTuple):
    """A flag set of a pull request, and the one that it is compared with."""

    base: str
    """The name of the other FlagSet."""
    sides: tuple[FlagSet | None, FlagSet | None]
    """The flags of the other, and its own; None where they are incomplete."""

    def add_to(self, message: Message, text: str) -> Message:
        """Return the message with what is said of the comparison, in Markdown."""
        more = {COMPARED_WITH: self.base, CHANGES: text}
        return message.model_copy(update={"metadata": message.metadata | more})


def comparison_of(objects: Cache, message: Message, namespace: str) -> ComparedSets | None:
    """Return what the FlagSet of a message is compared with; None: nothing. Takes long for large sets."""
    thing = objects.get(ObjectKey(message.kind, namespace, message.name))
    base = None if thing is None else base_of(objects, thing)
    if thing is None or base is None:
        return None
    return ComparedSets(base.name, (_flags(objects, base), _flags(objects, thing)))


def comparison_text(before: FlagSet, after: FlagSet, limit: int, now: int, *, measure: bool = True) -> str:
    """Return what the second does to users in place of the first, in at most `limit` bytes of Markdown; empty
    where no flag differs. now: Unix seconds. `measure`: with the shares of users, which takes long.
    """
    sides = tuple(commit_in(side.revision or "")[:12] or "unknown" for side in (before, after))
    return comment(plan_flags(before, after, now, Beside(), measure=measure), (sides[0], sides[1]), limit)


def _flags(objects: Cache, flag_set: Resource) -> FlagSet | None:
    """Return the flags of the FlagSet's first written object; None if they are incomplete."""
    namespace = flag_set.namespace
    target = FlagSetStatus.of(flag_set).target
    keys = [ObjectKey(written.kind or "", namespace, written.name or "") for written in target]
    resource = next((known for key in keys if (known := objects.get(key)) is not None), None)
    if resource is None:
        return None
    try:
        flag_set_ = delivery_of(resource, flagshard.finder(objects.get, namespace)).flag_set
    except (InvalidSpecError, MissingShardsError):
        return None
    # The sets' ids differ, which changes no evaluation.
    metadata = {name: value for name, value in flag_set_.metadata.items() if name != "flagSetId"}
    return replace(flag_set_, metadata=metadata)


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _fields(thing: Resource, reason: str, words: str) -> dict[str, str]:
    failing = _FAILING if status_of(thing).failure else {}
    return {"reason": reason, "message": words[:2_000], **failing}


_FAILING: Final = {"state": "failing", "severity": "error"}
