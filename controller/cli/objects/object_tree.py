"""Sources, the flag sets made of them, the objects that these write, what rolls their changes out, and
evaluators that lag. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controller.api import flagset
from controller.api.kinds import status_of
from controller.api.objects.conditions import DEPENDENCIES_SERVED
from controller.api.objects.meta import ObjectKey
from controller.api.openfeature import featureflagconfiguration
from controller.api.openfeature.featureflagconfiguration import ConfigurationStatus
from controller.api.rollouts import flagrollout
from controller.cli.objects.kind_words import SOURCES
from controller.cli.objects.object_rows import RECORD, object_row
from controller.cli.shared.printing import short
from controller.delivery.progress.overrides import set_name
from controller.delivery.waiting import line

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from controller.api.objects.meta import Resource


@dataclass(frozen=True, slots=True)
class TreeNode:
    """An object, or an evaluator that lags, and what depends on it."""

    __pydantic_config__ = RECORD

    kind: str
    """The object's kind, or Evaluator."""
    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    ready: str | None = None
    """The status of the condition Ready; absent where there is none."""
    state: str = ""
    """Its revision and how far it is served, how far a rollout is, or what an evaluator serves."""
    children: tuple[TreeNode, ...] = field(default_factory=tuple)
    """What is made of it."""


def object_tree(resources: Sequence[Resource]) -> list[TreeNode]:
    """Return the roots: sources, and whatever is made of no source among `resources`."""
    by_key = {resource.key: resource for resource in resources}
    parents = {resource.key: _parent(resource, by_key) for resource in resources}
    children: dict[ObjectKey | None, list[Resource]] = {}
    for resource in resources:
        children.setdefault(parents[resource.key], []).append(resource)
    unused = {type_.kind for type_ in SOURCES[1:]}
    # A source of Flux may be none of flags.
    roots = [root for root in children.get(None, ()) if root.key.kind not in unused or root.key in children]
    return [_node(root, children) for root in roots]


def _parent(resource: Resource, known: Collection[ObjectKey]) -> ObjectKey | None:
    key: ObjectKey | None = None
    if resource.key.kind == flagset.KIND:
        key = flagset.source_key(resource)
    elif resource.key.kind == flagrollout.KIND:
        kinds = (flagset.KIND, featureflagconfiguration.KIND)
        keys = (ObjectKey(kind, resource.namespace, set_name(resource)) for kind in kinds)
        key = next((named for named in keys if named in known), None)
    elif writer := resource.labels.get(flagset.LABEL):
        key = ObjectKey(flagset.KIND, resource.namespace, writer)
    return key if key is not None and key in known else None


def _node(resource: Resource, children: Mapping[ObjectKey | None, Sequence[Resource]]) -> TreeNode:
    row = object_row(resource)
    parts = [short(row.revision or ""), f"served {row.served}" if row.served else ""]
    if row.phase:
        parts = [row.phase, f"step {row.step}" if row.step else "", row.share or ""]
    state = ", ".join(part for part in parts if part)
    if row.suspended:
        state = f"{state}, suspended".lstrip(", ")
    if row.ready == "False" and not row.phase:
        state = short(row.message or row.reason or "")
    if resource.key.kind == flagset.KIND:
        waits = (short(known.message) for known in status_of(resource).conditions_of(DEPENDENCIES_SERVED))
        state = "; ".join(filter(None, (state, *waits)))
    below = [_node(child, children) for child in children.get(resource.key, ())]
    return TreeNode(row.kind, row.namespace, row.name, row.ready, state, (*below, *_laggards(resource)))


def _laggards(resource: Resource) -> list[TreeNode]:
    if resource.key.kind != featureflagconfiguration.KIND:
        return []
    return [
        TreeNode("Evaluator", resource.namespace, laggard.name, "False", line(laggard))
        for laggard in ConfigurationStatus.of(resource).laggards or ()
    ]
