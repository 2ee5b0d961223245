"""`flagstaff tree`: sources, their flag sets, what these write, what keeps flags from users, and evaluators
that lag.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from controller.api import featureflagconfiguration, flagoverride, flagrollout, flagset
from controller.api.kinds import status_of
from controller.api.meta import ObjectKey
from controller.api.status import DEPENDENCIES_SERVED
from controller.cli.connection import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.object_rows import RECORD, SOURCES, object_row
from controller.cli.output import DOCUMENTS, add_output_argument, document, draw, plain
from controller.cli.printing import OK, printable, short
from controller.delivery.overrides import set_name
from controller.delivery.set_state import CandidateLayer, OverrideLayer
from controller.delivery.state_words import cause_text, laggard_text, names_text, override_text, position_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Mapping, Sequence

    from controller.api.meta import Resource
    from controller.cli.cluster_view import ReadSets
    from controller.delivery.set_state import SetState


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


_STYLES: Final = {"True": "green", "False": "red"}


def configure_tree(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="only the source or flag set of this name")
    add_output_argument(parser, "text", *DOCUMENTS)
    add_cluster_arguments(parser, lists=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 shown; 1 no such object or namespace; 2 wrong usage; 3 no cluster."""
    # JOINED
    # JOINED

    read = run_on_cluster(lambda: _read(options), doing="reading the cluster")
    roots = object_tree(read.resources, read.states)
    if options.name:
        roots = nodes_named(roots, options.name)
    if options.output in DOCUMENTS:
        print(document(plain(roots, TreeNode), options.output), end="")
    else:
        print(draw_trees(roots, namespaced=options.all_namespaces), end="")
    return OK


async def _read(options: argparse.Namespace) -> ReadSets:
    # Imported here: it takes a second or two.
    from controller.api import kinds
    from controller.cli.cluster_view import read_states
    from controller.cli.connection import open_connection
    from controller.cli.object_rows import SOURCES

    about = (*SOURCES, kinds.FLAG_SET, *kinds.DELIVERED[:2], kinds.FLAG_ROLLOUT, kinds.FLAG_OVERRIDE)
    async with open_connection(scope_of(options)) as connection:
        return await read_states(connection, *about)


def nodes_named(roots: Sequence[TreeNode], name: str) -> list[TreeNode]:
    """The nodes of this name, each with all below it. Raises Exit with a name that is spelled alike."""
    from controller.cli.printing import PROBLEM, Exit, did_you_mean

    level, names = list(roots), set()
    while level:
        if matching := [node for node in level if node.name == name]:
            return matching
        names |= {node.name for node in level}
        level = [child for node in level for child in node.children]
    raise Exit(f"there is no source and no flag set {name}{did_you_mean(name, sorted(names))}", PROBLEM)


def draw_trees(roots: Sequence[TreeNode], *, namespaced: bool) -> str:
    """The trees as lines, coloured on a terminal."""
    from rich.tree import Tree

    if not roots:
        return "no sources and no flag sets\n"
    return "".join(
        draw(_branch(Tree(_label(root, namespaced=namespaced), guide_style="dim"), root)) for root in roots
    )


def _branch(branch: Any, node: TreeNode) -> Any:
    for child in node.children:
        _branch(branch.add(_label(child, namespaced=False)), child)
    return branch


def _label(node: TreeNode, *, namespaced: bool) -> Any:
    from rich.text import Text

    place = f"{node.namespace}/" if namespaced else ""
    if node.kind == "Evaluator":
        return Text(printable(node.state), style="red")
    label = Text(printable(f"{node.kind}/{place}{node.name}"), style=_STYLES.get(node.ready or "", "yellow"))
    return label.append(f"  {printable(node.state)}".replace("\n", " ").rstrip(), style="default")
