"""`flagstaff events`: what happened to flags in a cluster, and what happens now."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

from controller.cli.answers import printable
from controller.runtime.plain_text import one_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("-n", "--namespace", default="", help="one namespace (default all)")
    parser.add_argument("--watch", action="store_true", help="keep running and show each Event, until Ctrl-C")
    parser.add_argument(
        "-o", "--output", choices=["text", "json"], default="text",
        help="a line for people, or the JSON that alerts post (default text)",
    )  # fmt: skip
    parser.add_argument("--kubeconfig", metavar="FILE", help="a kubeconfig's path (default $KUBECONFIG)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 shown; 3 no cluster."""
    from kubernetes.aio.config.config_exception import ConfigException

    from controller.wiring.looking import Unreachable

    try:
        asyncio.run(_show(options))
    except BrokenPipeError:
        raise
    except Unreachable as error:
        print(f"flagstaff events: the cluster cannot be read: {error}", file=sys.stderr)
        return 3
    except (OSError, ConfigException) as error:
        where = f"{options.kubeconfig}: " if options.kubeconfig else ""
        print(f"flagstaff events: cannot find a cluster: {where}{error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 0
    return 0


async def _show(options: argparse.Namespace) -> None:
    from controller.wiring.event_stream import events_of

    following = events_of(options.kubeconfig, options.namespace, watch=options.watch)
    async with contextlib.aclosing(following) as events:
        async for event in events:
            text = json.dumps(event, ensure_ascii=False) if options.output == "json" else line(event)
            print(printable(text), flush=True)


def line(event: Mapping[str, Any]) -> str:
    """An Event on one line. What strangers write must not move a terminal's cursor."""
    about = event["involvedObject"]
    text = (
        f"{event['timestamp']}  {event['severity']:5}  {about['kind']}/{about['namespace']}/{about['name']}  "
        f"{event['reason']}  {event['message']}"
    )
    return one_line(text, len(text))
