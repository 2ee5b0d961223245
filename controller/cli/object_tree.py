"""Sources, the flag sets made of them, the objects that these write, what keeps flags of them from users, and
evaluators that lag. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from controller.api import featureflagconfiguration, flagoverride, flagrollout, flagset
from controller.api.kinds import status_of
from controller.api.meta import ObjectKey, Resource
from controller.api.status import DEPENDENCIES_SERVED
from controller.cli.object_rows import RECORD, SOURCES, object_row
from controller.cli.printing import short
from controller.delivery.overrides import set_name
from controller.delivery.set_state import CandidateLayer, OverrideLayer, SetState
from controller.delivery.state_words import cause_text, laggard_text, names_text, override_text, position_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


_LAYERS: Final = frozenset({flagrollout.KIND, flagoverride.KIND})


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


def object_tree(resources: Sequence[Resource], states: Mapping[ObjectKey, SetState]) -> list[TreeNode]:
    """Return the roots: sources, and whatever is made of no source among `resources`. `states`: of the flag
    sets, by object and by FlagSet.
    """
    by_key = {resource.key: resource for resource in resources}
    parents = {resource.key: _parent(resource, by_key) for resource in resources}
    children: dict[ObjectKey | None, list[Resource]] = {}
    for resource in resources:
        children.setdefault(parents[resource.key], []).append(resource)
    unused = {type_.kind for type_ in SOURCES[1:]}
    # A source of Flux may be none of flags.
    roots = [root for root in children.get(None, ()) if root.key.kind not in unused or root.key in children]
    return [_node(root, children, states) for root in roots]


def _parent(resource: Resource, known: Collection[ObjectKey]) -> ObjectKey | None:
    key: ObjectKey | None = None
    if resource.key.kind == flagset.KIND:
        key = flagset.source_key(resource)
    elif resource.key.kind in _LAYERS:
        kinds = (flagset.KIND, featureflagconfiguration.KIND, featureflagconfiguration.FLAG_KIND)
        keys = (ObjectKey(kind, resource.namespace, set_name(resource)) for kind in kinds)
        key = next((named for named in keys if named in known), None)
    else:
        key = flagset.writer_key(resource)
    return key if key is not None and key in known else None


def _node(
    resource: Resource,
    children: Mapping[ObjectKey | None, Sequence[Resource]],
    states: Mapping[ObjectKey, SetState],
) -> TreeNode:
    state = states.get(resource.key)
    row = object_row(resource, state)
    below = [_node(child, children, states) for child in children.get(resource.key, ())]
    parts = [short(row.revision or ""), f"served {row.served}" if row.served else "", row.withheld or ""]
    if resource.key.kind in _LAYERS:
        parts = [row.phase or "", *_layer_texts(resource.key, states)]
    elif row.ready == "False":
        parts = [short(row.message or row.reason or "")]
    parts += ["suspended"] if row.suspended else []
    if resource.key.kind == flagset.KIND:
        parts += [short(known.message) for known in status_of(resource).conditions_of(DEPENDENCIES_SERVED)]
    lagging = () if state is None or state.key != resource.key else state.served.laggards
    evaluators = [
        TreeNode("Evaluator", resource.namespace, laggard.name, "False", laggard_text(laggard))
        for laggard in lagging
    ]
    text = "; ".join(filter(None, parts))
    return TreeNode(row.kind, row.namespace, row.name, row.ready, text, (*below, *evaluators))


def _layer_texts(key: ObjectKey, states: Mapping[ObjectKey, SetState]) -> list[str]:
    """What a FlagRollout or a FlagOverride makes of the flags of its set."""
    layers = {layer: None for state in states.values() for layer in state.withheld}
    texts = []
    for layer in layers:
        if isinstance(layer, CandidateLayer) and layer.rollout == key:
            position = f"{position_text(layer)}: {names_text(layer.flags)}"
            texts.append("; ".join(filter(None, (position, cause_text(layer)))))
        elif isinstance(layer, OverrideLayer) and layer.override == key:
            texts.append(override_text(layer).partition(": ")[2])
    return texts
