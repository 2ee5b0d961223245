"""The state of a flag set or a FlagRollout for the commits that it is about, and of a flag set for its pull
request. Pure.

Of a FlagRollout, a commit is pending until everybody gets its flags. Only what the flag set has now can come
to that: a commit that another one replaces before has failed. The present commit, and earlier ones that may
succeed with it as they have the same content, are remembered as `COMMIT STATE HASH`, between semicolons.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.api import flagrollout, flagset, flagshard
from controller.api.featureflagconfiguration import MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.api.flagset_status import FlagSetStatus
from controller.api.kinds import status_of
from controller.api.meta import CHANGES, COMPARED_WITH, ObjectKey, Resource
from controller.api.status import OVERRIDE_ACTIVE, PROPAGATED, READY, ROLLOUT_ACTIVE, TRUE, UNKNOWN
from controller.delivery.changed_flags import changed_flags
from controller.delivery.delivered import delivery_of
from controller.delivery.overrides import FLAG_KINDS
from controller.delivery.promotion import newest_revision, promotion_of, stopped_of_set, writers_of
from controller.delivery.rollouts import rollouts_for, rollouts_naming
from controller.events import alert_messages
from controller.events.alert_stage import BY_COMPARED
from controller.events.commit_pages import commit_in
from evaluator.flags.diff import diff
from evaluator.flags.model import REVISION_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from controller.api.flagprovider import Message
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
    message, after = _flag_set_state(thing, before, stopped_of_set(objects, thing, now), alert, now)
    return [message] if after != before else [], after


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


def ended_states(rollout: Resource, before: str, alert: Alert, now: datetime) -> Iterator[Message]:
    """Yield the last statuses of commits that a FlagRollout was about, which is deleted."""
    for commit, known in _open_commits(before).items():
        if known.startswith("pending "):
            text = f"FlagRollout {rollout.name} was deleted before everybody got this commit"
            yield _rollout_message(rollout, f"@sha1:{commit}", "Deleted", text, alert, now)


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
        message = _rollout_message(rollout, revision, reason, promotion.message, alert, now)
        state, commit = state_name(message), commit_in(revision)
        entry = f"{state} {_short_hash(promotion.message)}" if state != "success" else "success -"
        if known.get(commit) != entry:
            messages.append(message)
        if revision == newest or state == "pending":
            after[commit] = entry
    listed = [f"{commit} {entry}" for commit, entry in after.items()]
    return messages, ";".join(listed[:_MOST_OPEN])


def _open_commits(reported: str) -> dict[str, str]:
    pairs = (entry.partition(" ") for entry in reported.split(";") if entry)
    return {commit: state for commit, _, state in pairs}


def _rollout_message(
    rollout: Resource, revision: str, reason: str, words: str, alert: Alert, now: datetime
) -> Message:
    failing = {} if reason in {PROMOTED, "RolloutActive"} else _FAILING
    identity = f"{revision.rpartition('@')[2]} {reason} {words} {rollout.resource_version}"
    given = {"reason": reason, "message": words[:2_000], **failing}
    message = alert_messages.of_state(rollout, alert, identity, now, **given)
    return message.model_copy(update={"metadata": message.metadata | {REVISION_KEY: revision}})


def _flag_set_state(
    thing: Resource, before: str, stopped: str, alert: Alert, now: datetime
) -> tuple[Message, str]:
    state = status_of(thing)
    ready, propagated = state.condition(READY), state.condition(PROPAGATED)
    reason, words = state.failure or "Applied", ready.message
    rolled_back = state.is_ready and stopped
    # What keeps users from having the revision although evaluators serve it.
    layers = [c.message for type_ in (ROLLOUT_ACTIVE, OVERRIDE_ACTIVE) for c in state.conditions_of(type_)]
    if rolled_back:
        reason, words = "RolledBack", stopped
    elif state.is_ready and layers:
        words = "; ".join(layers)
    elif state.is_ready and propagated.status in {TRUE, UNKNOWN}:
        reason, words = PROPAGATED, propagated.message
    commit = commit_in(state.content[0])[:12]
    # After a step or an override the same state is news again.
    since_layers = before if before.startswith(f"{commit} pending ") else ""
    identity = f"{state.content[0]} {reason} {words} {ready.since} {since_layers}"
    fields = _fields(thing, reason, words) | (_FAILING if rolled_back else {})
    message = alert_messages.of_state(thing, alert, identity, now, **fields)
    after = f"{commit} {state_name(message)}"
    if not commit:
        return message, before
    if rolled_back or (state.is_ready and layers):
        # Each step is told.
        return message, f"{after} {_short_hash(words)}"
    # A revision that all subscribers served stays successful while new ones subscribe.
    known = before == f"{commit} success" and after == f"{commit} pending"
    return message, before if known else after


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


def with_comparison(objects: Cache, message: Message, namespace: str) -> Message:
    """Return a compared FlagSet's message with a line for each of at most 100 flags that evaluate
    differently; any other message unchanged. Takes long for large sets.
    """
    thing = objects.get(ObjectKey(message.kind, namespace, message.name))
    base = None if thing is None else base_of(objects, thing)
    if thing is None or base is None:
        return message
    old, new = (_flags(objects, flag_set) for flag_set in (base, thing))
    lines = "unknown: one of the two is incomplete"
    if old is not None and new is not None:
        lines = "\n".join(changed_flags(old, new, diff(old, new), 100))
    more = {COMPARED_WITH: base.name, CHANGES: lines}
    return message.model_copy(update={"metadata": message.metadata | more})


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
