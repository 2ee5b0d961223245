"""`flagstaff up`: source → artifact → flag set → evaluator in one process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from controller.cli.arguments import add_build_arguments, local_options, seconds
from controller.cli.report import JsonReport, Report, TextReport
from controller.runtime.setbacks import Setback
from controller.wiring.local import (
    InvalidSettingError,
    Restored,
    RevisionBuilt,
    build_once,
    evaluator_settings,
    open_local,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Coroutine

    from controller.wiring.local import LocalEvent, LocalOptions


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_build_arguments(parser)
    parser.add_argument(
        "--interval", type=seconds, default=10.0, metavar="SECONDS",
        help="how often a remote is looked at; a local repository is watched (default 10)",
    )  # fmt: skip
    for name, port, what in (
        ("--port", 8013, "gRPC (flagd.evaluation)"),
        ("--sync-port", 8015, "flagd.sync.v1, for in-process providers"),
        ("--ofrep-port", 8016, "OFREP"),
        ("--management-port", 8014, "health and metrics"),
    ):
        parser.add_argument(
            name, type=int, default=None, metavar="N",
            help=f"{what}; 0 takes a free port (default {port})",
        )  # fmt: skip
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default loopback)"
    )
    parser.add_argument(
        "--state-dir", type=Path, metavar="DIR",
        help="keep mirror, artifacts and last good here, and start from them when SOURCE is gone",
    )  # fmt: skip
    parser.add_argument(
        "--once", action="store_true", help="one pass without serving; exit 0, 1 or 3"
    )
    parser.add_argument(
        "--show-bucketing",
        action="store_true",
        help="name the generation of fractional in every answer's metadata",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes; with --once, report one pass."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    options = local_options(arguments)
    report: Report = JsonReport(sys.stdout) if arguments.json else TextReport(sys.stdout)
    if arguments.once:
        return asyncio.run(_once(options, report))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(options, arguments, report))


async def _once(options: LocalOptions, report: Report) -> int:
    try:
        built = await build_once(options)
    except Setback as setback:
        report.source_down(setback.message)
        return 3
    report.revision(built)
    failing = [
        p for p in built.composition.problems if p.severity == "error" or not options.lenient
    ]
    return 1 if failing else 0


async def _serve(options: LocalOptions, arguments: argparse.Namespace, report: Report) -> int:
    ready = False

    def tell(event: LocalEvent) -> None:
        nonlocal ready
        if not ready and _is_served(event):
            ready = True
            report.ready(ports)
        report.event(event)

    try:
        settings = evaluator_settings(
            host=arguments.host,
            port=arguments.port,
            sync_port=arguments.sync_port,
            ofrep_port=arguments.ofrep_port,
            management_port=arguments.management_port,
        )
        async with open_local(options, settings, tell) as (local, ports):
            report.listening(ports, local.pipeline.shown)
            await _until_signalled(local.run())
    except (OSError, InvalidSettingError) as error:
        print(f"flagstaff up: cannot serve: {error}", file=sys.stderr)
        return 2
    except Setback as setback:
        print(f"flagstaff up: {setback.message}", file=sys.stderr)
        return 3
    return 0


def _is_served(event: LocalEvent) -> bool:
    match event:
        case RevisionBuilt(composition=made):
            return made.accepted
        case Restored():
            return True
        case _:
            return False


async def _until_signalled(work: Coroutine[None, None, None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working
