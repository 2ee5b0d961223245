"""`flagstaff fleet`: which evaluator serves which revision, of a cluster or of one proxy."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from controller.cli.clusters import SeveralClusters, add_cluster_arguments, run_on_cluster, scopes_of
from controller.cli.output import (
    DOCUMENTS,
    WATCH_SECONDS,
    add_output_argument,
    add_watch_argument,
    document,
    follow,
)
from controller.cli.printing import OK, columns, printable, short
from controller.cli.remote import remote
from controller.delivery.set_reading import read_sets
from controller.delivery.state_words import laggard_text, served_ratio
from controller.runtime.clock import now

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

    from controller.api.meta import Resource
    from controller.cli.clusters import ClusterScope

_HEAD = ("FLAG SET", "REVISION", "SERVED", "DELIVERED", "WITHIN")
_MEMBERS = ("FLAG SET", "EVALUATOR", "NODE", "VERSION", "SERVES", "STATE", "SINCE")


def configure_fleet(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "--to", metavar="ADDRESS",
        help="ask the management port, host:port, of one proxy or of `flagstaff up` for each evaluator that "
        "it knows",
    )  # fmt: skip
    add_watch_argument(parser, "each change")
    add_output_argument(parser, "table", *DOCUMENTS)
    add_cluster_arguments(parser, lists=True, several=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 shown; 1 a cluster of several cannot be read; 2 wrong usage; 3 neither cluster nor proxy."""
    scopes = scopes_of(options)
    with contextlib.suppress(KeyboardInterrupt):
        if options.to:
            asyncio.run(_follow_proxy(options))
        elif len(scopes) > 1:
            return run_on_cluster(lambda: _follow_clusters(options, scopes))
        else:
            run_on_cluster(lambda: _follow_cluster(options, scopes[0]))
    return OK


async def _follow_proxy(options: argparse.Namespace) -> None:
    proxy = remote(options.to, "proxy or `flagstaff up`")

    async def show() -> str:
        page = await asyncio.to_thread(proxy.get, "/fleet")
        flag_sets = [
            flag_set
            for flag_set in page.get("flagSets") or ()
            if options.namespace in {None, flag_set.get("namespace")}
        ]
        if options.output in DOCUMENTS:
            return document(flag_sets, options.output)
        return proxy_table(flag_sets)

    await follow(show, partial(asyncio.sleep, 1.0), watch=options.watch)


async def _follow_cluster(options: argparse.Namespace, scope: ClusterScope) -> None:
    from controller.api.kinds import FEATURE_FLAG_CONFIGURATION
    from controller.cli.cluster_view import open_view

    async def show() -> str:
        return _shown(options, [("", view.of_kind(FEATURE_FLAG_CONFIGURATION.kind))])

    async with open_view(scope, (FEATURE_FLAG_CONFIGURATION,)) as (view, _):
        await view.wait_for(FEATURE_FLAG_CONFIGURATION.kind)
        await follow(show, partial(view.wait, 0.2), watch=options.watch)


async def _follow_clusters(options: argparse.Namespace, scopes: Sequence[ClusterScope]) -> int:
    from controller.api.kinds import FEATURE_FLAG_CONFIGURATION
    from controller.cli.connection import open_connection

    async def read(scope: ClusterScope) -> list[Resource]:
        async with open_connection(scope) as connection:
            return await connection.resources(FEATURE_FLAG_CONFIGURATION)

    async def show() -> str:
        return _shown(options, await reader.read_all())

    reader = SeveralClusters(scopes, read)
    await follow(show, partial(asyncio.sleep, WATCH_SECONDS), watch=options.watch)
    return reader.code


def _shown(options: argparse.Namespace, clusters: Sequence[tuple[str, Sequence[Resource]]]) -> str:
    if options.output in DOCUMENTS:
        return document(cluster_records(clusters), options.output)
    return cluster_table(clusters)


def cluster_table(clusters: Iterable[tuple[str, Sequence[Resource]]]) -> str:
    """Every flag set that is a FeatureFlagConfiguration, and under it who does not serve it. Each cluster is
    given by its context, which is shown unless it is empty.
    """
    rows: list[tuple[str, ...]] = []
    below: dict[int, list[str]] = {}
    head: tuple[str, ...] = _HEAD
    for context, configurations in clusters:
        head = ("CLUSTER", *_HEAD) if context else _HEAD
        for state in read_sets(configurations, now()):
            served = state.served
            row = (
                f"{state.key.namespace}/{state.key.name}",
                short(state.revision or state.digests.effective),
                served_ratio(served),
                str(served.streams),
                served.within,
            )
            rows.append((context, *row) if context else row)
            below[len(rows)] = [f"  {laggard_text(laggard)}" for laggard in served.laggards]
    return _text([head, *rows], below) if rows else "no flag sets\n"


def cluster_records(clusters: Iterable[tuple[str, Sequence[Resource]]]) -> list[dict[str, Any]]:
    """`cluster` of several, `namespace`, `name`, and the status of each flag set without its conditions."""
    return [
        {
            **({"cluster": context} if context else {}),
            "namespace": configuration.namespace,
            "name": configuration.name,
            **{key: value for key, value in configuration.status.items() if key != "conditions"},
        }
        for context, configurations in clusters
        for configuration in configurations
    ]


def proxy_table(flag_sets: Iterable[Mapping[str, Any]]) -> str:
    """Every evaluator that a proxy knows."""
    rows: list[tuple[str, ...]] = [_MEMBERS]
    below: dict[int, list[str]] = {}
    for flag_set in flag_sets:
        for member in flag_set.get("members") or ():
            behind = str(member.get("reason") or "behind") if member.get("lagging") else "ok"
            state = "silent" if member.get("silent") else behind
            claimed = "" if member.get("verified") else " (claimed)"
            rows.append(
                (
                    f"{flag_set.get('namespace')}/{flag_set.get('name')}",
                    f"{member.get('name')}{claimed}",
                    str(member.get("node") or ""),
                    str(member.get("version") or ""),
                    short(str(member.get("revision") or member.get("digest") or "nothing")),
                    state,
                    str(member.get("since") or ""),
                )
            )
        served, total, streams = (flag_set.get(field, 0) for field in ("served", "total", "delivered"))
        counted = f"{served} of {total} evaluators serve what is delivered"
        below[len(rows) - 1] = [f"  {counted}" + (f"; {streams} streams of others" if streams else "")]
    return _text(rows, below) if len(rows) > 1 else "no evaluators\n"


def _text(rows: Sequence[tuple[str, ...]], below: Mapping[int, Sequence[str]]) -> str:
    lines: list[str] = []
    for number, text in enumerate(columns(rows)):
        lines += [text, *map(printable, below.get(number, ()))]
    return "\n".join(lines) + "\n"
