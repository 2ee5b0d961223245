"""FeatureFlagConfiguration and FeatureFlag: whoever wrote them, is what they deliver sound?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from controller.api import shard
from controller.api.configuration import MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.api.meta import ObjectKey
from controller.delivery.delivered import delivered, no_progress
from controller.delivery.problems import first_problem, problem_list
from controller.runtime.setbacks import Stalled, Waiting
from controller.runtime.settle import Outcome
from evaluator.flags.model import REVISION_KEY
from evaluator.flags.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from controller.api.meta import Resource
    from controller.delivery.delivered import Delivered
    from controller.runtime.cache import Cache
    from evaluator.flags.effective import Progress

_FORMS: Final = ("flagSpec", "shards", "featureFlagSpec")


@dataclass(frozen=True, slots=True)
class ConfigurationReconciler:
    """Judges; changes nothing."""

    objects: Cache
    progress: Callable[[Resource], Progress] = no_progress
    """Rollouts and overrides of an object: what is served is digested, as at the proxy."""

    async def reconcile(self, resource: Resource, now: datetime) -> Outcome:
        """Parse as an evaluator would. Raises Stalled for errors, Waiting for shards that are to come."""
        del now
        try:
            verdict = await asyncio.to_thread(self._judge, resource)
        except InvalidSpecError as error:
            raise Stalled("InvalidSpec", str(error)) from error
        except MissingShardsError as missing:
            message = f"{missing}; the set comes into force once all of its shards are there"
            raise Waiting("ShardsMissing", message) from missing
        status = _status(verdict)
        errors = [each for each in verdict.problems if each.severity is Severity.ERROR]
        if errors:
            problem = first_problem(errors)
            end = "" if problem.endswith("?") else "."
            message = f"{problem}{end} Correct it where this object is written"
            raise Stalled("InvalidFlags", message, status=status)
        count = len(verdict.flag_set.flags)
        what = "1 flag is" if count == 1 else f"{count} flags are"
        if not verdict.problems:
            return Outcome(message=f"{what} sound", status=status)
        message = f"{what} served, with a warning: {first_problem(verdict.problems)}"
        return Outcome(message=message, status=status)

    def forget(self, key: ObjectKey) -> None:
        """Nothing was kept."""

    def _judge(self, resource: Resource) -> Delivered:
        def part(name: str) -> Resource | None:
            return self.objects.get(ObjectKey(shard.KIND, resource.namespace, name))

        found = delivered(resource, part, self.progress(resource))
        # JSON within an object has no lines that anybody knows: a problem's place is its path.
        form = next((f"spec.{name}" for name in _FORMS if resource.spec.get(name) is not None), "")
        problems = (
            replace(each, file=f"{form}{each.path.removeprefix('$')}", line=0, column=0, path="")
            for each in found.problems
        )
        return replace(found, problems=tuple(problems))


def _status(verdict: Delivered) -> dict[str, Any]:
    flag_set = verdict.flag_set
    entries = problem_list(verdict.problems)
    status: dict[str, Any] = {
        # The place is a path of the object, not a file of it.
        "problems": [
            {("path" if name == "file" else name): value for name, value in each.items()} for each in entries
        ],
        "problemCount": len(verdict.problems),
        "flags": len(flag_set.flags),
    }
    if verdict.digest:
        status["digest"] = verdict.digest
    if flag_set.flag_set_id:
        status["flagSetId"] = flag_set.flag_set_id
    if REVISION_KEY in flag_set.metadata:
        status["revision"] = str(flag_set.metadata[REVISION_KEY])
    return status
