"""Decides for `flagstaff wait` whether a revision is served, from objects as they are. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api.conditions import find

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.meta import Resource

SHORTEST: Final = 7
"""Characters of a commit's name that may stand for it."""
_COMMIT: Final = re.compile(r"[0-9a-f]{7,64}")


@dataclass(frozen=True, slots=True)
class WaitState:
    """How far a revision has come."""

    done: bool
    message: str
    """For people, in one line."""
    waits_for: tuple[str, ...] = ()
    """Who does not serve it, as far as they are named."""
    over: bool = False
    """It will not be served until a person changes something."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is waited for."""

    revision: str
    """`main@sha1:…`, or a commit, or the beginning of one."""
    percent: float = 100.0
    allow_none: bool = False
    """Whether it is enough that there is no subscriber."""


def is_revision(text: str) -> bool:
    """Whether `text` is something that may be waited for."""
    return "@" in text or _COMMIT.fullmatch(text) is not None


def names(wanted: str, revision: str) -> bool:
    """Whether `wanted` means this revision: by all of it, by its commit, or by the commit's beginning."""
    if wanted == revision:
        return True
    commit = revision.rpartition(":")[2]
    return _COMMIT.fullmatch(wanted) is not None and commit.startswith(wanted)


def wait_state(configuration: Resource | None, flag_set: Resource | None, wanted: Wanted) -> WaitState:
    """From the FeatureFlagConfiguration, and the FlagSet that writes it where there is one."""
    if configuration is None:
        return WaitState(False, "the FeatureFlagConfiguration does not exist yet")
    status = configuration.status
    if status.get("observedGeneration") != configuration.generation:
        return WaitState(False, "the controller has not processed the FeatureFlagConfiguration yet")
    digest = str(status.get("digest") or "")
    entry = _entry(flag_set, wanted.revision)
    if flag_set is not None and _status(flag_set).get("digest") != digest:
        # Either of the two is older: whether all flags are as the revision has them is not known yet.
        return _elsewhere(configuration, flag_set, wanted.revision)
    if entry.get("held") or not _is_of(status, entry, digest, wanted.revision):
        return _elsewhere(configuration, flag_set, wanted.revision)
    return _counted(status, wanted)


def _entry(flag_set: Resource | None, wanted: str) -> Mapping[str, Any]:
    """The newest entry of a revision in the FlagSet's history; empty where there is none."""
    entries = [each for each in _status(flag_set).get("history") or () if isinstance(each, dict)]
    return next((each for each in entries if names(wanted, str(each.get("revision")))), {})


def _is_of(status: Mapping[str, Any], entry: Mapping[str, Any], digest: str, wanted: str) -> bool:
    """Whether what stands in the object is what the revision made: also a commit that changed no flag made
    it.
    """
    return names(wanted, str(status.get("revision") or "")) or entry.get("digest") == digest


def _elsewhere(configuration: Resource, flag_set: Resource | None, wanted: str) -> WaitState:
    status, entry = _status(flag_set), _entry(flag_set, wanted)
    attempted = str(status.get("lastAttemptedRevision") or "")
    if names(wanted, attempted) and (not entry or entry.get("held")):
        ready = _condition(flag_set, "Ready", "False")
        lacking = "applied whole" if entry else "applied"
        # The message begins with the revision, and says what became of it.
        message = ready if ready.startswith(attempted) else f"{attempted} is not {lacking}"
        if ready and message != ready:
            message = f"{message}: {ready}"
        return WaitState(False, message, over=_stalled(flag_set))
    held = configuration.status.get("revision") or "no revision"
    if entry.get("held"):
        return WaitState(False, f"{wanted} was applied only in part, and {attempted} has replaced it")
    if names(wanted, str(held)):
        return WaitState(
            False,
            f"the FeatureFlagConfiguration does not have the content that the FlagSet built from {held}",
        )
    if entry:
        return WaitState(False, f"{wanted} was applied, and {held} has replaced it")
    return WaitState(False, f"the FeatureFlagConfiguration has {held}, not {wanted}")


def _stalled(flag_set: Resource | None) -> bool:
    """Whether the controller waits for a person, having seen the FlagSet as it is now."""
    judged = flag_set is not None and _status(flag_set).get("observedGeneration") == flag_set.generation
    return judged and bool(_condition(flag_set, "Stalled", "True"))


def _counted(status: Mapping[str, Any], wanted: Wanted) -> WaitState:
    total = int(status.get("total") or 0)
    served = _served(status)
    what = status.get("revision") or status.get("digest")
    if not total:
        message = f"no evaluator that sends receipts is subscribed to {what}"
        return WaitState(wanted.allow_none, message)
    message = f"{served} of {total} evaluators serve {what}"
    done = served * 100 >= wanted.percent * total
    return WaitState(done, message, _laggards(status, total - served))


def _served(status: Mapping[str, Any]) -> int:
    text = str(status.get("served") or "0").partition("/")[0]
    return int(text) if text.isdigit() else 0


def _laggards(status: Mapping[str, Any], lagging: int) -> tuple[str, ...]:
    laggards = [each for each in status.get("laggards") or () if isinstance(each, dict)]
    lines = [line(each) for each in laggards[:lagging]]
    rest = lagging - len(lines)
    return (*lines, f"and {rest} more") if rest and lines else tuple(lines)


def line(laggard: Mapping[str, Any]) -> str:
    """`shop/checkout-1 on node-3: silent since …, served main@sha1:…`."""
    node = f" on {laggard['node']}" if laggard.get("node") else ""
    serves = laggard.get("serves") or "nothing"
    since = laggard.get("since") or "an unknown time"
    if laggard.get("silent"):
        return f"{laggard.get('name')}{node}: silent since {since}, served {serves}"
    return f"{laggard.get('name')}{node}: serves {serves} (behind since {since})"


def _status(resource: Resource | None) -> Mapping[str, Any]:
    return {} if resource is None else resource.status


def _condition(flag_set: Resource | None, kind: str, state: str) -> str:
    """The message of a condition that is in a state; empty where it is not."""
    found = find(_status(flag_set), kind) or {}
    return str(found.get("message") or "") if found.get("status") == state else ""
