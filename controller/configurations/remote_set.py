"""Judges what a remote provider sent: flags, held where they are bad, and the FlagShards of them. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from controller.api.objects.fields import InvalidSpecError
from controller.api.objects.meta import ACCEPT_REVISION, lets_through
from controller.api.openfeature.featureflagconfiguration import MissingShardsError
from controller.api.parsing.references import is_older
from controller.delivery.delivered import KEPT_BOUNDS
from controller.delivery.problem_text import first_problem
from controller.delivery.remote_answers import INVALID
from controller.delivery.remote_flags import read_shards
from controller.delivery.sharding import LARGEST, TooLargeError, parts, shard_of
from controller.runtime.reconciling.setbacks import Failed, Stalled
from controller.runtime.user_text.plain_text import one_line
from evaluator.flags.accept import Refused, accept
from evaluator.flags.canonical import canonical
from evaluator.flags.canonical import digest as digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.objects.meta import Resource
    from controller.api.remote_provider import ProviderStatus
    from controller.delivery.remote_answers import RemoteAnswer
    from controller.runtime.reconciling.setbacks import Setback
    from evaluator.flags.layers.parsed import Parsed
    from evaluator.flags.model import FlagSet

OLDER: Final = "OlderVersion"
PARTLY: Final = "PartiallyFetched"
"""Some flags keep their definition from before."""
MOST_SHARDS: Final = 64
"""Most FlagShards of one provider."""
_NAMED: Final = 5
_KEY: Final = 64
_VERSION: Final = 128


@dataclass(frozen=True, slots=True)
class RemoteSet:
    """The flags of a provider, to be served."""

    version: str
    flags: int
    shards: tuple[tuple[str, dict[str, Any]], ...]
    """(name, spec) of each FlagShard."""
    partly: Setback | None = None
    """Some flags are bad; the others are as the provider has them."""


def judge_answer(
    resource: Resource,
    answer: RemoteAnswer,
    before: ProviderStatus | None,
    shards: Mapping[str, Resource | None],
) -> RemoteSet:
    """Return the set to serve after what `before` describes, whose FlagShards are `shards` by name. Takes
    long for a large set. Raises Failed (InvalidFlags, TooLarge), Stalled (OlderVersion).
    """
    parsed, last = answer.read(), _last_good(before, shards)
    judged = accept(parsed, last)
    if isinstance(judged, Refused):
        raise Failed(INVALID, f"{first_problem(judged.problems)}; correct it at the provider")
    flag_set = judged.flag_set
    if not flag_set.flags and last is not None and last.flags:
        todo = "to remove these flags, remove remoteFlagProvider"
        raise Failed(INVALID, f"the provider has no flags any more, after {len(last.flags)}; {todo}")
    if older := _how_older(parsed, answer.modified, before, last, judged.digest):
        _require_accepted(resource, older, judged.digest)
    named = str(flag_set.metadata.get(answer.version_key) or flag_set.metadata.get("version") or "")
    version = answer.version or one_line(named or judged.digest, _VERSION)
    divided = _shards(resource.name, canonical(flag_set, provenance=True))
    bad = (*judged.held, *judged.missing)
    partly = _partly_failure(bad, first_problem(judged.problems)) if bad else None
    return RemoteSet(version, len(flag_set.flags), divided, partly)


def _last_good(before: ProviderStatus | None, shards: Mapping[str, Resource | None]) -> FlagSet | None:
    if before is None or not before.shards:
        return None
    try:
        return read_shards(before.fields(), shards.get, KEPT_BOUNDS)
    except (InvalidSpecError, MissingShardsError):
        return None


def _how_older(
    parsed: Parsed,
    modified: datetime | None,
    before: ProviderStatus | None,
    last: FlagSet | None,
    digest: str,
) -> str:
    """Return in which way an answer is older than what is served; empty: in none that can be seen."""
    if last is None or before is None or digest_of(last) == digest:
        # Of the same flags, replicas may differ in when they were written.
        return ""
    new, old = (str(flag_set.metadata.get("version") or "") for flag_set in (parsed.flag_set, last))
    if is_older(new, old):
        return f"version {one_line(new, _KEY)} is older than {one_line(old, _KEY)}, which was fetched before"
    try:
        known = datetime.fromisoformat(before.last_modified or "")
    except ValueError:
        return ""
    if modified is None or modified >= known:
        return ""
    return f"the document of {modified.isoformat()} is older than that of {known.isoformat()}"


def _require_accepted(resource: Resource, older: str, digest: str) -> None:
    if lets_through(resource.annotations.get(ACCEPT_REVISION, ""), digest):
        return
    raise Stalled(
        OLDER,
        f"{older}; if the older one is to be served, accept it: kubectl -n {resource.namespace} annotate ffc "
        f"{resource.name} --overwrite {ACCEPT_REVISION}={digest}",
    )


def _shards(owner: str, document: bytes) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Raises Failed (TooLarge)."""
    whole: Mapping[str, Any] = json.loads(document)
    try:
        divided = [dict(whole)] if len(document) <= LARGEST else list(parts(dict(whole)))
    except TooLargeError as error:
        raise Failed("TooLarge", str(error)) from error
    if len(divided) > MOST_SHARDS:
        todo = "select a smaller set"
        raise Failed("TooLarge", f"the flags take {len(divided)} shards, of {MOST_SHARDS}; {todo}")
    # Not the name of a shard of the object's own flags, should both have the same.
    return tuple(shard_of(f"{owner[:190]}-remote", part) for part in divided)


def _partly_failure(bad: tuple[str, ...], problem: str) -> Failed:
    named = ", ".join(one_line(key, _KEY) for key in bad[:_NAMED]) + (", …" if len(bad) > _NAMED else "")
    which = "1 flag is" if len(bad) == 1 else f"{len(bad)} flags are"
    return Failed(
        PARTLY,
        f"{which} bad, and served as before, if at all: {named}: {problem}; correct it at the provider",
    )
