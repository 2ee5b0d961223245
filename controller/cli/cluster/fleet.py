"""`flagstaff fleet`: which evaluator serves which revision, of a cluster or of one proxy."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from controller.api.openfeature.featureflagconfiguration import ConfigurationStatus
from controller.cli.shared.clusters import add_cluster_arguments, run_on_cluster
from controller.cli.shared.printing import columns, printable, short
from controller.cli.shared.remote import remote
from controller.delivery.waiting import line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from controller.api.objects.meta import Resource

_HEAD = ("FLAG SET", "REVISION", "SERVED", "DELIVERED", "WITHIN")
_MEMBERS = ("FLAG SET", "EVALUATOR", "NODE", "VERSION", "SERVES", "STATE", "SINCE")
_CLEAR = "\x1b[H\x1b[2J"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "--to", metavar="ADDRESS",
        help="ask one proxy's management port, host:port, for each evaluator that it knows",
    )  # fmt: skip
    parser.add_argument(
        "--watch", action="store_true", help="keep running and show each change, until Ctrl-C"
    )
    parser.add_argument(
        "-o", "--output", choices=["text", "json"], default="text", help="a table (default), or JSON"
    )
    add_cluster_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 shown; 2 wrong usage; 3 neither cluster nor proxy."""
    try:
        if options.to:
            return asyncio.run(_proxy(options))
        return run_on_cluster(lambda: _follow(options))
    except KeyboardInterrupt:
        return 0


async def _proxy(options: argparse.Namespace) -> int:
    there = remote(options.to, "proxy")

    async def table() -> str:
        found = await asyncio.to_thread(there.get, "/fleet")
        flag_sets = [
            flag_set
            for flag_set in found.get("flagSets") or ()
            if options.namespace in {"", flag_set.get("namespace")}
        ]
        return _as_json(flag_sets) if options.output == "json" else proxy_table(flag_sets)

    return await _shown(options, table, partial(asyncio.sleep, 1.0))


async def _follow(options: argparse.Namespace) -> int:
    from controller.api.kinds import FEATURE_FLAG_CONFIGURATION
    from controller.cli.cluster.cluster_view import ClusterView, watching

    async def table() -> str:
        configurations = view.of_kind(FEATURE_FLAG_CONFIGURATION.kind)
        return cluster_json(configurations) if options.output == "json" else cluster_table(configurations)

    kinds = (FEATURE_FLAG_CONFIGURATION,)
    async with watching(options.kubeconfig, options.namespace, kinds, ClusterView()) as view:
        await view.wait_for(FEATURE_FLAG_CONFIGURATION.kind)
        return await _shown(options, table, partial(view.wait, 0.2))


async def _shown(
    options: argparse.Namespace, table: Callable[[], Awaitable[str]], wait: Callable[[], Awaitable[None]]
) -> int:
    """Print the table, and with --watch each other one that it becomes."""
    last = ""
    while True:
        text = await table()
        if text != last:
            print((_CLEAR if options.watch and sys.stdout.isatty() else "") + text, end="", flush=True)
            last = text
        if not options.watch:
            return 0
        await wait()


def cluster_table(configurations: Iterable[Resource]) -> str:
    """Every flag set that is a FeatureFlagConfiguration, and under it who does not serve it."""
    rows: list[tuple[str, ...]] = [_HEAD]
    below: dict[int, list[str]] = {}
    for each in configurations:
        status = ConfigurationStatus.of(each)
        rows.append(
            (
                f"{each.namespace}/{each.name}",
                short(status.revision or status.digest or ""),
                status.served or "-",
                str(status.delivered or 0),
                status.served_within or "",
            )
        )
        below[len(rows) - 1] = [f"  {line(laggard)}" for laggard in status.laggards or ()]
    if len(rows) == 1:
        return "no flag sets\n"
    return _text(rows, below)


def cluster_json(configurations: Iterable[Resource]) -> str:
    """A list of `namespace`, `name`, and the status of each flag set without its conditions."""
    return _as_json(
        [
            {
                "namespace": configuration.namespace,
                "name": configuration.name,
                **{key: value for key, value in configuration.status.items() if key != "conditions"},
            }
            for configuration in configurations
        ]
    )


def _as_json(document: Sequence[Mapping[str, Any]]) -> str:
    return printable(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"


def proxy_table(flag_sets: Iterable[Mapping[str, Any]]) -> str:
    """Every evaluator that a proxy knows."""
    rows: list[tuple[str, ...]] = [_MEMBERS]
    for each in flag_sets:
        for member in each.get("members") or ():
            state = "silent" if member.get("silent") else "behind" if member.get("lagging") else "ok"
            claimed = "" if member.get("verified") else " (claimed)"
            rows.append(
                (
                    f"{each.get('namespace')}/{each.get('name')}",
                    f"{member.get('name')}{claimed}",
                    str(member.get("node") or ""),
                    str(member.get("version") or ""),
                    short(str(member.get("revision") or member.get("digest") or "nothing")),
                    state,
                    str(member.get("since") or ""),
                )
            )
    return _text(rows, {}) if len(rows) > 1 else "no evaluators\n"


def _text(rows: Sequence[tuple[str, ...]], below: Mapping[int, Sequence[str]]) -> str:
    lines: list[str] = []
    for number, text in enumerate(columns(rows)):
        lines += [text, *map(printable, below.get(number, ()))]
    return "\n".join(lines) + "\n"
