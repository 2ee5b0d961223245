"""`flagstaff events`: past Events about flags in a cluster, and with --watch new ones."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from controller.api.meta import CHANGES
from controller.cli.clusters import add_cluster_arguments, add_since_argument, run_on_cluster, scope_of
from controller.cli.output import add_output_argument, add_watch_argument
from controller.cli.printing import printable
from controller.runtime.clock import now
from controller.runtime.plain_text import one_line
from evaluator.host.times import parse_time

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping


_RED, _GREEN, _YELLOW, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"
_COLOURS: Final = {"error": _RED, "+": _GREEN, "-": _RED, "~": _YELLOW}
"""Colours by severity, and by the beginning of a changed flag's line."""
_TYPES: Final = {"error": "Warning", "info": "Normal"}
"""The API server's types of Events, by the severities of alerts."""


def configure_events(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_watch_argument(parser, "each new Event")
    parser.add_argument("--for", dest="about", metavar="KIND/NAME", help="only Events about this object")
    parser.add_argument("--types", choices=sorted(_TYPES.values()), help="only Events of this type")
    add_since_argument(parser)
    add_output_argument(parser, "text", "json")
    add_cluster_arguments(parser, lists=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 shown; 2 wrong usage; 3 no cluster."""
    if options.about:
        from controller.cli.object_rows import object_text

        options.about = object_text(options.about)
    with contextlib.suppress(KeyboardInterrupt):
        run_on_cluster(lambda: _show(options))
    return 0


async def _show(options: argparse.Namespace) -> None:
    from controller.cli.event_stream import events_of

    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    following = events_of(scope_of(options), watch=options.watch)
    async with contextlib.aclosing(following) as events:
        async for event in events:
            if not _is_wanted(event, options):
                continue
            if options.output == "json":
                print(printable(json.dumps(event, ensure_ascii=False)), flush=True)
            else:
                print("\n".join(lines(event, colours=colours)), flush=True)


def _is_wanted(event: Mapping[str, Any], options: argparse.Namespace) -> bool:
    about = event["involvedObject"]
    if options.about and f"{about['kind']}/{about['name']}".lower() != options.about:
        return False
    moment = parse_time(event["timestamp"])
    if options.since and moment is not None and (now() - moment).total_seconds() > options.since:
        return False
    return options.types in {None, _TYPES[event["severity"]]}


def lines(event: Mapping[str, Any], *, colours: bool) -> list[str]:
    """An Event on a line, and a line for each flag that it changes."""
    changes = event["metadata"].get(CHANGES, "")
    rows = [(event["severity"], _line(event))]
    rows += [(line[:1], f"  {one_line(line, len(line))}") for line in changes.split("\n") if line]
    return [
        f"{_COLOURS[kind]}{text}{_PLAIN}" if colours and kind in _COLOURS else text for kind, text in rows
    ]


def _line(event: Mapping[str, Any]) -> str:
    """Return an Event as one line; no text of a stranger in it can move a terminal's cursor."""
    about = event["involvedObject"]
    text = (
        f"{event['timestamp']}  {_TYPES[event['severity']]:7}  "
        f"{about['kind']}/{about['namespace']}/{about['name']}  "
        f"{event['reason']}  {event['message']}"
    )
    return one_line(text, len(text))
