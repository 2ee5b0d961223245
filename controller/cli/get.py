"""`flagstaff get`: the sources, flag sets and flags of a cluster, and how they are."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from controller.cli.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.object_rows import (
    SHOWN,
    FlagRow,
    ObjectRow,
    columns_of,
    flag_rows,
    object_row,
    type_named,
)
from controller.cli.output import FORMS, add_output_argument, document, follow, plain, table
from controller.cli.printing import OK, USAGE, Exit

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from controller.api.kind import ResourceType
    from controller.cli.cluster_view import ClusterView
    from controller.cli.connection import ClusterConnection

Row: TypeAlias = ObjectRow | FlagRow
_ALL: Final = "all"
_FLAGS: Final = "flags"


def configure_get(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "what", metavar="KIND", help="sources, sets, flags, another kind such as providers, or all"
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="only these objects, or these flags")
    parser.add_argument("--watch", action="store_true", help="show each change, until Ctrl-C")
    add_output_argument(parser, *FORMS)
    add_cluster_arguments(parser, lists=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 shown; 1 no such object or namespace; 2 wrong usage; 3 no cluster."""
    what = _FLAGS if options.what.lower() == "flag" else options.what.lower()
    if options.names and (what == _ALL or options.all_namespaces):
        raise Exit("names need a kind and one namespace, such as get sets NAME -n NAMESPACE", USAGE)
    types = _types(what)
    doing = "" if options.watch else "reading the cluster"
    with contextlib.suppress(KeyboardInterrupt):
        run_on_cluster(lambda: _show(options, what, types), doing=doing)
    return OK


def _types(what: str) -> tuple[ResourceType, ...]:
    from controller.api import kinds

    if what == _ALL:
        return SHOWN
    flags = (*kinds.DELIVERED, kinds.FLAG_SET, kinds.FLAG_ROLLOUT, kinds.FLAG_OVERRIDE)
    return flags if what == _FLAGS else (type_named(what, _ALL, _FLAGS),)


async def _show(options: argparse.Namespace, what: str, types: tuple[ResourceType, ...]) -> None:
    # Imported here: it takes a second or two.
    from controller.cli.cluster_view import ClusterView, update_view
    from controller.cli.connection import open_connection

    async with open_connection(scope_of(options)) as connection, contextlib.AsyncExitStack() as stack:
        view = ClusterView(types, connection.namespace)
        if options.watch:
            await stack.enter_async_context(update_view(connection, view))
            for type_ in types:
                await view.wait_for(type_.kind)
        else:
            await _load(connection, view)

        async def show() -> str:
            return _text(options, what, types, view, connection)

        await follow(show, partial(view.wait, 60.0), watch=options.watch)


async def _load(connection: ClusterConnection, view: ClusterView) -> None:
    for type_ in view.types:
        for body in await connection.bodies(type_):
            view.informer.learn(type_.kind, body)
        view.informer.end_listing(type_.kind, connection.namespace)


def _text(
    options: argparse.Namespace,
    what: str,
    types: tuple[ResourceType, ...],
    view: ClusterView,
    connection: ClusterConnection,
) -> str:
    shown: list[Row]
    states = view.states()
    kind = what if what in {_ALL, _FLAGS} else types[0].kind
    if kind == _FLAGS:
        # Of two objects that one flag set writes, the FeatureFlagConfiguration is what evaluators read.
        written = [resource for type_ in reversed(types[:2]) for resource in view.of_kind(type_.kind)]
        delivering = {(resource.namespace, resource.name): resource for resource in written}
        shown = [*flag_rows(delivering.values(), view.objects.get, states)]
    else:
        resources = [resource for type_ in types for resource in view.of_kind(type_.kind)]
        shown = [object_row(resource, states.get(resource.key)) for resource in resources]
    named = [_name(row) for row in shown]
    for name in options.names:
        if name not in named:
            raise connection.missing_object("flag" if kind == _FLAGS else kind, name, named)
    if options.names:
        shown = [row for row in shown if _name(row) in options.names]
    return _render(options.output, kind, shown, namespaced=options.all_namespaces)


def _render(form: str, kind: str, shown: Sequence[Row], *, namespaced: bool) -> str:
    record = FlagRow if kind == _FLAGS else ObjectRow
    if form in {"json", "yaml"}:
        return document(plain(shown, record), form)
    if form == "name":
        return "".join(f"{_full_name(row)}\n" for row in shown)
    rows = "flags" if kind == _FLAGS else "objects" if kind == _ALL else f"{kind}s"
    return table(columns_of(kind, namespaced=namespaced), shown, wide=form == "wide", rows=rows)


def _name(row: Row) -> str:
    return row.key if isinstance(row, FlagRow) else row.name


def _full_name(row: Row) -> str:
    return row.key if isinstance(row, FlagRow) else f"{row.kind}/{row.name}"
