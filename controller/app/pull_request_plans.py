"""What a pull request does to users of a FlagSet.

Its files are fetched as those of the FlagSource are, built as those of the FlagSet are, and compared with
what the FlagSet delivers. Anybody may open one: no Secret and no ConfigMap is read for it but those by which
the repository is read, its submodules are not followed, and one of a fork has no variables at all. What it
takes is bounded by the limits of a helper.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api.addresses import server_of
from controller.api.flagset import FlagSetSpec, delivers_elsewhere, source_key, target_name
from controller.api.flagset_status import FlagSetStatus
from controller.api.flagsource import KIND, FlagSourceSpec
from controller.api.kinds import FLAG_SET
from controller.api.meta import AUTHOR, ObjectKey, Resource
from controller.api.source_spec import GitReference
from controller.authoring.plan_words import FORGES
from controller.authoring.policy_selection import circumstances_of
from controller.events.pushes import normalise_url
from controller.flagsets.applied import last_applied, objects_written_by
from controller.flagsets.foreign_plans import ForeignCommit, plan_text, untrusted
from controller.runtime.helpers import Task
from controller.runtime.result import spec_of
from controller.runtime.setbacks import Stalled, Waiting
from controller.sources.backend import FetchRequest
from controller.sources.freshness import Freshness
from controller.sources.reconciler import archive_of
from controller.sources.source_files import ignored_files, quarantine

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from controller.api.source_spec import GitSpec
    from controller.authoring.policies import Circumstances
    from controller.events.pull_requests import PullRequest
    from controller.runtime.cache import Cache
    from controller.runtime.helpers import ForeignTasks
    from controller.sources.backend import BackendFactory

_MARKER: Final = 200
"""Bytes for what the poster puts before a comment."""
_PLANS: Final = "plans of"
"""Before a FlagSource's name: what is kept for its pull requests is not what is kept for itself."""


@dataclass(frozen=True, slots=True)
class PullRequestPlanner:
    """Implements the poster's `Planner`."""

    objects: Cache
    git: BackendFactory[GitSpec]
    tasks: ForeignTasks
    now: Callable[[], datetime]
    home: str
    """Our own namespace, whose FlagPolicies judge others."""

    def version(self, namespace: str, flag_set: str) -> str:
        """See Planner."""
        resource = self.objects.get(ObjectKey(FLAG_SET.kind, namespace, flag_set))
        key = None if resource is None else source_key(resource)
        source = None if key is None else self.objects.get(key)
        if resource is None or source is None:
            return ""
        delivered = FlagSetStatus.of(resource).digest
        known = f"{resource.uid} {resource.generation} {delivered} {source.uid} {source.generation}"
        # The first says when.
        beside = str(self._around(resource)[1:])
        return f"{known} {hashlib.sha256(beside.encode()).hexdigest()}"

    async def plan(self, namespace: str, flag_set: str, pull: PullRequest, address: str, type_: str) -> str:
        """See Planner."""
        resource = self.objects.get(ObjectKey(FLAG_SET.kind, namespace, flag_set))
        if resource is None:
            raise Waiting("FlagSetNotFound", f'FlagSet "{flag_set}" not found')
        if delivers_elsewhere(resource):
            message = (
                f"FlagSet {flag_set} writes to another cluster (spec.kubeConfig), which plans do not read"
            )
            raise Stalled("OtherCluster", message)
        archive, revision, author = await self._fetch(resource, pull, address)
        spec = await asyncio.to_thread(spec_of, FlagSetSpec, resource)
        written = objects_written_by(resource, spec, self.objects)
        last = await asyncio.to_thread(last_applied, written, self.objects)
        limit = FORGES[server_of(type_)] - _MARKER
        around = self._around(resource)._replace(author=author)
        commit = ForeignCommit(archive, revision, limit, around)
        task = Task(namespace, f"the plan of pull request {pull.number}", "make several FlagSets of it")
        given = untrusted(spec, of_fork=pull.is_fork)
        return await self.tasks.run(task, plan_text, commit, given, resource, last, large=True)

    def _around(self, resource: Resource) -> Circumstances:
        """What stands beside the FlagSet. Nobody verifies who signed."""
        names = {resource.name, target_name(resource)}
        found = circumstances_of(self.objects, resource, names, self.home, self.now())
        return found._replace(signer=None)

    async def _fetch(self, resource: Resource, pull: PullRequest, address: str) -> tuple[bytes, str, str]:
        """An archive of the pull request's files, its revision and its author. Raises Setback."""
        key = source_key(resource)
        source = None if key is None else self.objects.get(key)
        if key is None or source is None or key.kind != KIND or key.namespace != resource.namespace:
            message = f"FlagSet {resource.name} has no FlagSource in its own namespace; plans need one"
            raise Stalled("InvalidSource", message)
        spec = await asyncio.to_thread(spec_of, FlagSourceSpec, source)
        if spec.git is None or normalise_url(spec.git.url) != normalise_url(address):
            message = f"FlagSource {source.name} reads another repository than the provider's; correct one"
            raise Stalled("InvalidSource", message)
        git = spec.git.model_copy(
            update={"ref": GitReference(name=pull.reference), "recurse_submodules": False, "history": "Any"}
        )
        now, own = self.now(), ObjectKey(KIND, key.namespace, f"{_PLANS} {key.name}")
        request = FetchRequest(own, spec.timeout, Freshness(now, now), spec.service_account_name)
        backend = await self.git.open(git, request)
        try:
            found = await backend.resolve()
            async with quarantine(f"the files of {found}") as folder:
                fetched = await backend.fetch(found, folder)
                ignored = await asyncio.to_thread(ignored_files, folder, spec.ignore)
                archive = await asyncio.to_thread(archive_of, folder, fetched.skipped, ignored)
                return archive, str(found), fetched.metadata.get(AUTHOR, "")
        finally:
            self.git.forget(own)
