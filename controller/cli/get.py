"""`flagstaff get`: the sources, flag sets and flags of a cluster, and how they are."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from controller.cli import clusters
from controller.cli.object_rows import (
    SHOWN,
    FlagRow,
    ObjectRow,
    columns_of,
    flag_rows,
    has_condition,
    object_row,
    type_named,
)
from controller.cli.output import (
    FORMS,
    WATCH_SECONDS,
    add_output_argument,
    add_watch_argument,
    document,
    follow,
    plain,
    table,
)
from controller.cli.printing import OK, PROBLEM, USAGE, Exit, printable
from controller.runtime.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from controller.api.kind import ResourceType
    from controller.api.meta import Resource
    from controller.cli.cluster_view import ClusterView
    from controller.cli.connection import ClusterConnection
    from controller.runtime.cache import Cache

Row: TypeAlias = ObjectRow | FlagRow
_ALL: Final = "all"
_FLAGS: Final = "flags"


def configure_get(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    clusters.add_objects_arguments(parser, "sources, sets, flags, another kind such as providers, or all")
    clusters.add_selector_argument(parser)
    parser.add_argument(
        "--status-selector", type=_condition, metavar="TYPE=STATUS",
        help="only objects with this status of a condition, such as ready=false",
    )  # fmt: skip
    parser.add_argument("--no-header", "--no-headers", action="store_true", help="print no line of headings")
    add_watch_argument(parser, "each change")
    add_output_argument(parser, *FORMS)
    clusters.add_cluster_arguments(parser, lists=True, several=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 shown; 1 no such object or namespace, or some kinds or clusters cannot be read; 2 wrong usage; 3 no
    cluster.
    """
    word, options.names = clusters.named_objects(options)
    what = _FLAGS if word.lower() == "flag" else word.lower()
    if options.names and (what == _ALL or options.all_namespaces):
        raise Exit("names need a kind and one namespace, such as get sets NAME -n NAMESPACE", USAGE)
    if options.status_selector and what == _FLAGS:
        raise Exit("--status-selector is for objects: a flag has no conditions", USAGE)
    types = _types(what)
    doing = "" if options.watch else "reading the cluster"
    show = _show if len(clusters.scopes_of(options)) == 1 else _show_clusters
    with contextlib.suppress(KeyboardInterrupt):
        return clusters.run_on_cluster(lambda: show(options, what, types), doing=doing)
    return OK


def _condition(text: str) -> tuple[str, str]:
    kind, equals, status = text.partition("=")
    if not (kind and equals and status):
        raise argparse.ArgumentTypeError(f"{text!r} is not TYPE=STATUS, such as ready=false")
    return kind.lower(), status.lower()


def _types(what: str) -> tuple[ResourceType, ...]:
    from controller.api import kinds

    if what == _ALL:
        return SHOWN
    flags = (*kinds.DELIVERED, kinds.FLAG_SET, kinds.FLAG_ROLLOUT, kinds.FLAG_OVERRIDE)
    return flags if what == _FLAGS else (type_named(what, _ALL, _FLAGS),)


async def _show(options: argparse.Namespace, what: str, types: tuple[ResourceType, ...]) -> int:
    # Imported here: it takes a second or two.
    from controller.cli.cluster_view import ClusterView, update_view
    from controller.cli.connection import open_connection

    async with (
        open_connection(clusters.scope_of(options)) as connection,
        contextlib.AsyncExitStack() as stack,
    ):
        view = ClusterView(types, connection.namespace)
        if options.watch:
            await stack.enter_async_context(update_view(connection, view, options.selector))
        denied = [
            type_.kind
            for type_ in types
            if not await _read_kind(connection, type_, view, options, watching=options.watch)
        ]

        shown: list[Row] = []

        async def show() -> str:
            nonlocal shown
            shown = _rows(options, what, types, view)
            if options.names and not shown:
                raise _missing(options, what, types, view, connection)
            return _render(
                options, what, types, shown, lambda row: view.objects.get(row.key), connection.namespace
            )

        await follow(show, partial(view.wait, 60.0), watch=options.watch)
        if {*options.names} - {*map(_name, shown)}:
            raise _missing(options, what, types, view, connection)
    return PROBLEM if denied else OK


async def _show_clusters(options: argparse.Namespace, what: str, types: tuple[ResourceType, ...]) -> int:
    # Imported here: it takes a second or two.
    from controller.cli.cluster_view import ClusterView
    from controller.cli.connection import open_connection

    objects: dict[str | None, Cache] = {}
    denied: set[str | None] = set()

    async def read(scope: clusters.ClusterScope) -> list[Row]:
        async with open_connection(scope) as connection:
            view = ClusterView(types, connection.namespace)
            objects[scope.context] = view.objects
            for type_ in types:
                if not await _read_kind(connection, type_, view, options, watching=False):
                    denied.add(scope.context)
            return [replace(row, cluster=scope.context) for row in _rows(options, what, types, view)]

    async def show() -> str:
        shown = [row for _, rows in await reader.read_all() for row in rows]
        missing = [name for name in options.names if name not in map(_name, shown)]
        if missing:
            raise Exit(f"there is no {what} {missing[0]} in any of the clusters", PROBLEM)
        return _render(options, what, types, shown, lambda row: objects[row.cluster].get(row.key), None)

    reader = clusters.SeveralClusters(clusters.scopes_of(options), read)
    await follow(show, partial(asyncio.sleep, WATCH_SECONDS), watch=options.watch)
    return PROBLEM if denied else reader.code


async def _read_kind(
    connection: ClusterConnection,
    type_: ResourceType,
    view: ClusterView,
    options: argparse.Namespace,
    *,
    watching: bool,
) -> bool:
    """Whether the view, which a watch keeps up to date or not, has the objects of a kind. Of `all`, a kind
    that the user may not read is reported and left out. Raises Setback.
    """
    try:
        if watching:
            await view.wait_for(type_.kind)
            return True
        for body in await connection.bodies(type_, options.selector):
            view.informer.learn(type_.kind, body)
        view.informer.end_listing(type_.kind, connection.namespace)
    except Failed as failure:
        if options.kind != _ALL or failure.reason != "AccessDenied":
            raise
        print(f"flagstaff get: {printable(failure.message)}", file=sys.stderr)
        return False
    return True


def _all_rows(what: str, types: tuple[ResourceType, ...], view: ClusterView) -> list[Row]:
    states = view.states()
    if what == _FLAGS:
        # Of two objects that one flag set writes, the FeatureFlagConfiguration is what evaluators read.
        written = [resource for type_ in reversed(types[:2]) for resource in view.of_kind(type_.kind)]
        delivering = {(resource.namespace, resource.name): resource for resource in written}
        return [*flag_rows(delivering.values(), view.objects.get, states)]
    resources = [resource for type_ in types for resource in view.of_kind(type_.kind)]
    return [object_row(resource, states.get(resource.key)) for resource in resources]


def _rows(
    options: argparse.Namespace, what: str, types: tuple[ResourceType, ...], view: ClusterView
) -> list[Row]:
    """The rows that the options select."""
    rows = _all_rows(what, types, view)
    if options.names:
        rows = [row for row in rows if _name(row) in options.names]
    if options.status_selector:
        kind, status = options.status_selector
        rows = [
            row
            for row in rows
            if isinstance(row, ObjectRow)
            and (resource := view.objects.get(row.key)) is not None
            and has_condition(resource, kind, status)
        ]
    return rows


def _missing(
    options: argparse.Namespace,
    what: str,
    types: tuple[ResourceType, ...],
    view: ClusterView,
    connection: ClusterConnection,
) -> Exit:
    """What to end with where not all of the names are there."""
    names = [_name(row) for row in _all_rows(what, types, view)]
    name = next((name for name in options.names if name not in names), options.names[0])
    return connection.missing_object("flag" if what == _FLAGS else types[0].kind, name, names)


def _render(
    options: argparse.Namespace,
    what: str,
    types: tuple[ResourceType, ...],
    shown: Sequence[Row],
    find: Callable[[ObjectRow], Resource | None],
    namespace: str | None,
) -> str:
    """`namespace`: empty for all, None for those of several clusters."""
    kind = what if what in {_ALL, _FLAGS} else types[0].kind
    record = FlagRow if kind == _FLAGS else ObjectRow
    if options.output in {"json", "yaml"}:
        return document(plain(shown, record), options.output)
    if options.output == "name":
        return "".join(f"{_full_name(row)}\n" for row in shown)
    rows = "flags" if kind == _FLAGS else "objects" if kind == _ALL else f"{kind}s"
    where = f"in namespace {namespace}; -A lists all namespaces" if namespace else "in any namespace"
    return table(
        columns_of(kind, find, namespaced=options.all_namespaces, clusters=namespace is None),
        shown,
        wide=options.output == "wide",
        rows=f"{rows} {where if namespace is not None else 'in these clusters'}",
        header=not options.no_header,
    )


def _name(row: Row) -> str:
    return row.key if isinstance(row, FlagRow) else row.name


def _full_name(row: Row) -> str:
    return row.key if isinstance(row, FlagRow) else f"{row.kind}/{row.name}"
