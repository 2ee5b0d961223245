"""Judges objects with flags that people write by the FlagPolicies that select them, at admission."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson

from controller.api import flagpolicy
from controller.api.featureflagconfiguration import MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.api.meta import Resource
from controller.authoring.policies import (
    Circumstances,
    Policies,
    TooManyJudgementsError,
    given_policies,
    judge,
    may_refuse,
)
from controller.authoring.policy_selection import circumstances_of
from controller.delivery.delivered import delivery_of
from controller.delivery.overrides import names_of
from controller.delivery.problem_text import CHARACTERS, MOST_NAMED, summary
from controller.runtime.plain_text import one_line
from controller.validation.object_problems import FLAG_KINDS, objection
from evaluator.flags.model import FlagSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from controller.runtime.cache import Cache


@dataclass(frozen=True, slots=True)
class PolicySelection:
    """Finds the FlagPolicies for an object, and what they ask about it."""

    objects: Cache
    home: str
    """Our own namespace, whose FlagPolicies judge others."""
    now: Callable[[], datetime]

    def around(self, request: Mapping[str, Any], resource: Resource) -> Circumstances | None:
        """How the change of an AdmissionReview's request comes; None where no policy judges it."""
        if resource.key.kind not in FLAG_KINDS:
            return None
        around = circumstances_of(self.objects, resource, names_of(resource), self.home, self.now())
        user = request.get("userInfo")
        author = user.get("username") if isinstance(user, dict) else None
        return around._replace(author=str(author or "")) if around.given else None


def objection_to_review(content: bytes, around: Circumstances | None) -> tuple[str, tuple[str, ...]]:
    """The objection to the object of an AdmissionReview, in JSON; see `objection`. The flags of a sound one
    are judged by policies if `around` says how the change comes.
    """
    request = orjson.loads(content)["request"]
    body = request["object"]
    refusal, warnings = objection(body)
    if refusal or around is None:
        return refusal, warnings
    texts: dict[bool, list[str]] = {True: [], False: []}
    for refuses, message in _unmet(body, request.get("oldObject"), around):
        texts[refuses].append(one_line(f"{_title(body)}: {message}", CHARACTERS))
    if refused := texts[True]:
        return summary(refused, len(refused)), ()
    return "", (*islice(texts[False], MOST_NAMED), *warnings)


def _unmet(
    body: Mapping[str, Any], before: Mapping[str, Any] | None, around: Circumstances
) -> Iterator[tuple[bool, str]]:
    """Yield whether each verdict refuses the object, and its message. An object is stored whole, so that one
    whose flags would be held is refused.
    """
    try:
        after = _flags(body)
        around = around._replace(before=None if before is None else _old_flags(before))
        for verdict in judge(Policies(given_policies(around.given)), after, around):
            yield verdict.action != flagpolicy.PolicyAction.WARN, verdict.problem.message
    except MissingShardsError:
        message = "policies judge it, and do not see flags in FlagShards; write them into spec.flagSpec"
        yield may_refuse(around.given), message
    except TooManyJudgementsError as error:
        yield may_refuse(around.given), str(error)


def _flags(body: Mapping[str, Any]) -> FlagSet:
    """The flags that an object has itself. Raises InvalidSpecError, MissingShardsError."""
    given = {key: body[key] for key in ("apiVersion", "kind", "metadata", "spec") if key in body}
    return delivery_of(Resource.of(given), lambda _: None).desired


def _old_flags(body: Mapping[str, Any]) -> FlagSet:
    """Those of an object that is stored, and may be bad."""
    try:
        return _flags(body)
    except (InvalidSpecError, MissingShardsError, RecursionError):
        return FlagSet()


def _title(body: Mapping[str, Any]) -> str:
    metadata = body.get("metadata") or {}
    return f"{body['kind']} {metadata.get('name') or metadata.get('generateName') or ''}".strip()
