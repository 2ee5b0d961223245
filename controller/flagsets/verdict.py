"""FeatureFlagConfiguration and FeatureFlag: whoever wrote them, is what they deliver sound?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controller.api import shard
from controller.api.configuration import MissingShardsError, flag_document
from controller.api.fields import InvalidSpecError
from controller.api.meta import ObjectKey
from controller.flagsets import story
from controller.runtime.setbacks import Stalled, Waiting
from controller.runtime.settle import Outcome
from evaluator.flags.canonical import digest
from evaluator.flags.model import REVISION_KEY
from evaluator.flags.parse import parse
from evaluator.flags.problems import Severity

if TYPE_CHECKING:
    from datetime import datetime

    from controller.api.meta import Resource
    from controller.runtime.loop import Objects
    from evaluator.flags.merge import Parsed


@dataclass(frozen=True, slots=True)
class ConfigurationReconciler:
    """Judges; changes nothing."""

    objects: Objects

    async def reconcile(self, resource: Resource, now: datetime) -> Outcome:
        """Parse as an evaluator would. Raises Stalled for errors, Waiting for shards that are to come."""
        del now
        try:
            document = flag_document(resource, self._part_of(resource))
        except InvalidSpecError as error:
            raise Stalled("InvalidSpec", str(error)) from error
        except MissingShardsError as missing:
            raise Waiting("ShardsMissing", str(missing)) from missing
        file = f"{resource.key.kind}/{resource.name}"
        parsed, content = await asyncio.to_thread(_parsed, document.content, file)
        status = _status(parsed, content, document.warnings)
        errors = [each for each in parsed.problems if each.severity is Severity.ERROR]
        if errors:
            message = story.first_problem(errors)
            raise Stalled("InvalidFlags", message, status=status)
        warnings = status["problemCount"]
        suffix = f"; {warnings} warnings" if warnings else ""
        return Outcome(message=f"{status['flags']} flags are sound{suffix}", status=status)

    def forget(self, key: ObjectKey) -> None:
        """Nothing was kept."""

    def _part_of(self, resource: Resource) -> Any:
        def part(name: str) -> Resource | None:
            return self.objects.get(ObjectKey(shard.KIND, resource.namespace, name))

        return part


def _parsed(content: bytes, file: str) -> tuple[Parsed, str]:
    parsed = parse(content, file=file)
    return parsed, "" if parsed.whole_bad else digest(parsed.flag_set)


def _status(parsed: Parsed, content: str, warnings: tuple[str, ...]) -> dict[str, Any]:
    flag_set = parsed.flag_set
    problems = story.problem_list(parsed.problems)
    problems += [{"severity": "warning", "message": each} for each in warnings]
    status: dict[str, Any] = {
        "problems": problems[: story.MOST_PROBLEMS],
        "problemCount": len(parsed.problems) + len(warnings),
        "flags": len(flag_set.flags),
    }
    if content:
        status["digest"] = content
    if flag_set.flag_set_id:
        status["flagSetId"] = flag_set.flag_set_id
    if REVISION_KEY in flag_set.metadata:
        status["revision"] = str(flag_set.metadata[REVISION_KEY])
    return status
