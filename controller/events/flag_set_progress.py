"""The state of a flag set, for the commit or pull request that it was last made of. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.api import flagset, flagshard
from controller.api.featureflagconfiguration import MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.api.flagset_status import FlagSetStatus
from controller.api.kinds import status_of
from controller.api.meta import CHANGES, COMPARED_WITH, ObjectKey, Resource
from controller.api.status import OVERRIDE_ACTIVE, PROPAGATED, READY, ROLLOUT_ACTIVE, TRUE, UNKNOWN
from controller.delivery.changed_flags import changed_flags
from controller.delivery.delivered import delivery_of
from controller.events import alert_messages
from controller.events.alert_stage import BY_COMPARED
from controller.events.commit_pages import commit_in
from evaluator.flags.diff import diff

if TYPE_CHECKING:
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


def commit_state(thing: Resource, before: str, alert: Alert, now: datetime) -> tuple[Message, str] | None:
    """Return (status of the commit that a flag set was last made of, new Reported); None without a commit.
    `before`: the last Reported.
    """
    if thing.key.kind != flagset.KIND:
        return None
    state = status_of(thing)
    ready, propagated = state.condition(READY), state.condition(PROPAGATED)
    reason, words = state.failure or "Applied", ready.message
    # What keeps users from having the revision although evaluators serve it.
    layers = [c.message for type_ in (ROLLOUT_ACTIVE, OVERRIDE_ACTIVE) for c in state.conditions_of(type_)]
    if state.is_ready and layers:
        words = "; ".join(layers)
    elif state.is_ready and propagated.status in {TRUE, UNKNOWN}:
        reason, words = PROPAGATED, propagated.message
    commit = commit_in(state.content[0])[:12]
    # After a step or an override the same state is news again.
    since_layers = before if before.startswith(f"{commit} pending ") else ""
    identity = f"{state.content[0]} {reason} {words} {ready.since} {since_layers}"
    message = alert_messages.of_state(thing, alert, identity, now, **_fields(thing, reason, words))
    after = f"{commit} {state_name(message)}"
    if state.is_ready and layers:
        # Each step is told.
        return (message, f"{after} {_short_hash(words)}") if commit else None
    # A revision that all subscribers served stays successful while new ones subscribe.
    known = before == f"{commit} success" and after == f"{commit} pending"
    return (message, before if known else after) if commit else None


def state_name(message: Message) -> str:
    """Return `failure`, `pending` until the flag set is served to every user, then `success`."""
    if message.state == "failing":
        return "failure"
    return "success" if message.reason == PROPAGATED else "pending"


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
    failing = {"state": "failing", "severity": "error"} if status_of(thing).failure else {}
    return {"reason": reason, "message": words[:2_000], **failing}
