"""`flagstaff tree`: sources, their flag sets, what these write, what keeps flags from users, and evaluators
that lag.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from controller.cli.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.output import DOCUMENTS, add_output_argument, document, draw, plain
from controller.cli.printing import OK, PROBLEM, printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from controller.cli.effects import ReadSets
    from controller.cli.object_tree import TreeNode


_STYLES: Final = {"True": "green", "False": "red"}


def configure_tree(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="only the source or flag set of this name, or KIND/NAME"
    )
    add_output_argument(parser, "text", *DOCUMENTS)
    add_cluster_arguments(parser, lists=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 shown; 1 no such object or namespace, or some kinds cannot be read; 2 wrong usage; 3 no cluster."""
    from controller.cli.object_tree import TreeNode, object_tree

    read = run_on_cluster(lambda: _read(options), doing="reading the cluster")
    roots = object_tree(read.resources, read.states)
    if options.name:
        roots = nodes_named(roots, options.name)
    if options.output in DOCUMENTS:
        print(document(plain(roots, TreeNode), options.output), end="")
    else:
        print(draw_trees(roots, namespaced=options.all_namespaces), end="")
    for message in read.denied:
        print(f"flagstaff tree: {printable(message)}", file=sys.stderr)
    return PROBLEM if read.denied else OK


async def _read(options: argparse.Namespace) -> ReadSets:
    # Imported here: it takes a second or two.
    from controller.api import kinds
    from controller.cli.connection import open_connection
    from controller.cli.effects import read_states
    from controller.cli.object_rows import SOURCES

    about = (*SOURCES, kinds.FLAG_SET, *kinds.DELIVERED[:2], kinds.FLAG_ROLLOUT, kinds.FLAG_OVERRIDE)
    async with open_connection(scope_of(options)) as connection:
        return await read_states(connection, *about, in_part=True)


def nodes_named(roots: Sequence[TreeNode], name: str) -> list[TreeNode]:
    """The nodes of this name, each with all below it. Raises Exit with a name that is spelled alike."""
    from controller.cli.object_rows import type_named
    from controller.cli.printing import Exit, did_you_mean

    level, names = list(roots), set()
    kind, slash, own = name.rpartition("/")
    kinds = {type_named(kind).kind} if slash else {node.kind for node in level}
    while level:
        if matching := [node for node in level if node.name == own and (not slash or node.kind in kinds)]:
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
