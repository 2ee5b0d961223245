"""`flagstaff reconcile`: asks for a reconcile now, and shows each stage until evaluators serve it."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

from controller.api import flagset, flagsource
from controller.cli import clusters
from controller.cli.output import add_output_argument, plain
from controller.cli.printing import OK, PROBLEM, USAGE, Exit, printable, short

if TYPE_CHECKING:
    import argparse

    from controller.cli.reconcile_stages import ReachedStage


def configure_reconcile(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    clusters.add_objects_arguments(parser, "source or set")
    parser.add_argument(
        "--with-source", action="store_true", help="first have the source of the flag set fetched"
    )
    add_output_argument(parser, "text", "json")
    clusters.add_cluster_arguments(parser, timeout=300)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0: a source is fetched, a set is served as far as rollouts and overrides let it; 1: it failed, is not
    there, or not in time; 2 wrong usage; 3 no cluster; 130 interrupted.
    """
    from controller.cli.object_rows import type_named

    word, name = clusters.named_object(options)
    kind = type_named(word).kind
    if kind not in {flagsource.KIND, flagset.KIND}:
        raise Exit(f"a {kind} is not reconciled by request; name a source or a set", USAGE)
    if options.with_source and kind != flagset.KIND:
        raise Exit("--with-source is for a set", USAGE)
    return clusters.run_on_cluster(lambda: _follow(options, kind, name))


async def _follow(options: argparse.Namespace, kind: str, name: str) -> int:
    # Imported here: it takes a second or two.
    from controller.api.kinds import FLAG_SOURCE
    from controller.cli.connection import open_connection
    from controller.cli.reconcile_stages import ReconcileRun

    async with open_connection(clusters.scope_of(options)) as connection:
        run = ReconcileRun(connection)
        if kind == flagset.KIND:
            stages = run.flag_set(name, with_source=options.with_source)
        else:
            stages = run.source(FLAG_SOURCE, name)
        last = None
        try:
            async with asyncio.timeout(options.timeout):
                async for stage in stages:
                    _print(stage, options.output)
                    last = stage
        except TimeoutError:
            message = f"not done within {options.timeout:g} s: waiting for {run.waits_for}"
            print(printable(f"flagstaff reconcile: {message}"), file=sys.stderr)
            return PROBLEM
    return PROBLEM if last is None or last.stage == "failed" else OK


def _print(stage: ReachedStage, form: str) -> None:
    if form == "json":
        from controller.cli.reconcile_stages import ReachedStage

        print(printable(json.dumps(plain([stage], ReachedStage)[0], ensure_ascii=False)), flush=True)
        return
    text = f"{stage.seconds:7.2f}s  {stage.object}  {stage.stage}  {short(stage.message)}"
    print(printable(text).replace("\n", " "), flush=True)
