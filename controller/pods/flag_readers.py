"""The right of stock flagd to read FeatureFlags: in each namespace one Role and one RoleBinding, whose
subjects are the service accounts of the pods that ask, and which go with the last of them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api.kinds import FEATURE_FLAG, ROLE, ROLE_BINDING
from controller.pods.flagd_objects import MANAGED_BY, OURS, is_ours
from controller.pods.installation import FLAG_READER
from controller.runtime.cache import Applier, at_version
from controller.runtime.setbacks import Setback, Stalled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.api.kind import ResourceType
    from controller.pods.marked_pods import MarkedPods
    from controller.runtime.queue import KeyedQueue

log = logging.getLogger(__name__)

SELECTOR: Final = f"{FLAG_READER}=true"
MANAGER: Final = "flagstaff-flag-readers"
"""The field manager."""
NAME: Final = "flagstaff-flag-readers"
"""The name of the Role and the RoleBinding."""
CHECK_SECONDS: Final = 60.0
"""Seconds from one comparison with the cluster to the next."""


def account_of(metadata: Mapping[str, Any]) -> str:
    """Return the service account with whose rights a pod's evaluator reads flags."""
    return str((metadata.get("annotations") or {}).get(FLAG_READER) or "default")


class ReaderObjects(Applier, Protocol):
    """Roles and RoleBindings. Every method raises a Setback."""

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """An object's body, or None."""

    async def places(self, api_version: str, plural: str, namespaces: Sequence[str], name: str) -> set[str]:
        """List the namespaces with an object of that name."""


@dataclass(frozen=True, slots=True)
class FlagReaders:
    """Grants the right to read FeatureFlags to the service accounts of marked pods."""

    cluster: ReaderObjects
    queue: KeyedQueue[str]
    """A queue of namespaces."""
    pods: MarkedPods
    """Pods by their service accounts, see `account_of`."""
    namespaces: Sequence[str] = ()
    """Managed namespaces; empty: all."""

    async def run(self) -> None:
        """Keep the rights until cancelled."""
        await self.pods.wait_listed()
        # Namespaces with bindings from before this process started.
        places = await self.cluster.places(
            ROLE_BINDING.api_version, ROLE_BINDING.plural, self.namespaces, NAME
        )
        for place in places:
            self.queue.put(place)
        await self.queue.work(self.keep, _log_refused, longest=CHECK_SECONDS)

    async def keep(self, namespace: str) -> None:
        """Update the rights in one namespace to the needs of its pods; compare again later. Raises a
        Setback.
        """
        self.queue.put(namespace, CHECK_SECONDS)
        accounts = self.pods.texts(namespace)
        for type_, rest in _contents(namespace, accounts):
            await self._keep(type_, namespace, rest if accounts else None)
        # A pod may have come meanwhile, which has woken us.
        if not self.pods.texts(namespace):
            self.queue.forget(namespace)

    async def _keep(self, type_: ResourceType, namespace: str, rest: dict[str, Any] | None) -> None:
        """Apply an object that differs; `rest` is its content beside metadata, None deletes it."""
        current = await self.cluster.get(type_.api_version, type_.kind, namespace, NAME)
        if current is not None and not is_ours(current):
            if rest is None:
                return
            raise Stalled(
                "OwnershipConflict",
                f"{type_.kind} {NAME} is there, and not of Flagstaff; remove or rename it",
            )
        if rest is None:
            if current is not None:
                uid = current["metadata"]["uid"]
                await self.cluster.delete(type_.api_version, type_.kind, namespace, NAME, uid=uid)
        elif current is None or any(current.get(name) != value for name, value in rest.items()):
            meta = {"name": NAME, "namespace": namespace, "labels": {MANAGED_BY: OURS}}
            body = {"apiVersion": type_.api_version, "kind": type_.kind, "metadata": meta, **rest}
            version = "" if current is None else current["metadata"]["resourceVersion"]
            await self.cluster.apply(at_version(body, version), manager=MANAGER)


def _log_refused(namespace: str, setback: Setback) -> None:
    log.warning("the right to read FeatureFlags of %s: %s", namespace, setback.message)


def _contents(namespace: str, accounts: list[str]) -> list[tuple[ResourceType, dict[str, Any]]]:
    """What each has beside its metadata. The names of flags cannot be listed in a Role: flagd lists all."""
    verbs = ["get", "list", "watch"]
    rule = {"apiGroups": [FEATURE_FLAG.group], "resources": [FEATURE_FLAG.plural], "verbs": verbs}
    reference = {"apiGroup": ROLE.group, "kind": ROLE.kind, "name": NAME}
    subjects = [{"kind": "ServiceAccount", "name": account, "namespace": namespace} for account in accounts]
    return [(ROLE, {"rules": [rule]}), (ROLE_BINDING, {"roleRef": reference, "subjects": subjects})]
