"""`flagstaff logs`: what the controller, the proxy and admission log, of one object or of all."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from math import ceil
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from controller.cli.clusters import add_cluster_arguments, add_since_argument, run_on_cluster, scope_of
from controller.cli.printing import OK, PROBLEM, Exit, printable
from controller.runtime.setbacks import Failed, Setback

if TYPE_CHECKING:
    import argparse

    from controller.cli.connection import ClusterConnection

_NAMESPACE: Final = "flagstaff-system"
_SELECTOR: Final = "app.kubernetes.io/part-of=flagstaff"
_WITHOUT_LOG: Final = ("NoContent", "PodGone")
_NO_NODES: Final = (
    "the cluster has no nodes, so it runs no pods; read the logs of processes beside it where you started "
    "them"
)
_LEVELS: Final = ("debug", "info", "warning", "error", "critical")


def configure_logs(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "--for", dest="about", metavar="KIND/NAME", help="only lines about this object, such as FlagSet/flags"
    )
    parser.add_argument("--level", choices=_LEVELS, default="debug", help="only lines of this level or above")
    parser.add_argument("--tail", type=int, default=200, metavar="N", help="lines of each pod (default 200)")
    add_since_argument(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="show what is logged from now on")
    parser.add_argument(
        "--system-namespace", default=_NAMESPACE, metavar="NS",
        help=f"the namespace of the installation (default {_NAMESPACE})",
    )  # fmt: skip
    add_cluster_arguments(parser, lists=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 shown; 1 no pods of the installation, or some have no log; 2 wrong usage; 3 no cluster."""
    if options.about:
        from controller.cli.object_rows import object_text

        options.about = object_text(options.about)
    with contextlib.suppress(KeyboardInterrupt):
        return run_on_cluster(lambda: _show(options))
    return OK


async def _show(options: argparse.Namespace) -> int:
    # Imported here: it takes a second or two.
    from controller.cli.connection import has_nodes, open_connection
    from controller.kube.answers import require_object

    async with open_connection(scope_of(options)) as connection:
        place = f"/api/v1/namespaces/{quote(options.system_namespace, safe='')}/pods"
        answer = await connection.cluster.requests.ask("GET", place, {"labelSelector": _SELECTOR})
        pods = [pod["metadata"]["name"] for pod in require_object(answer, "pods", "").get("items") or ()]
        namespace = "" if options.all_namespaces else connection.namespace
        following = (_pod(connection, f"{place}/{pod}/log", pod, options, namespace) for pod in pods)
        failures = [failure for failure in await asyncio.gather(*following) if failure is not None]
        if len(failures) == len(pods):
            if not await has_nodes(connection.cluster):
                raise Exit(_NO_NODES, PROBLEM)
            if not pods:
                message = (
                    f"no pod in {options.system_namespace} has the label {_SELECTOR}; see --system-namespace"
                )
                raise Exit(message, PROBLEM)
            if failures[0].reason not in _WITHOUT_LOG:
                raise failures[0]
    return PROBLEM if failures else OK


async def _pod(
    connection: ClusterConnection, path: str, pod: str, options: argparse.Namespace, namespace: str
) -> Setback | None:
    """Print a pod's log; says, and returns, why it cannot be read."""
    from controller.kube.requests import KindNotInstalled

    try:
        await _print_log(connection, path, pod, options, namespace)
    except KindNotInstalled:
        return _report(pod, Failed("PodGone", "the pod is gone"))
    except Setback as setback:
        return _report(pod, setback)
    return None


def _report(pod: str, setback: Setback) -> Setback:
    print(f"flagstaff logs: {pod}: {printable(setback.message)}", file=sys.stderr)
    return setback


async def _print_log(
    connection: ClusterConnection, path: str, pod: str, options: argparse.Namespace, namespace: str
) -> None:
    from controller.kube.requests import WatchRequest, lines_of

    query = {"tailLines": str(options.tail), **({"follow": "true"} if options.follow else {})}
    if options.since is not None:
        query["sinceSeconds"] = str(ceil(options.since))
    target = f"{path}?{urlencode(query)}"
    # A quiet pod logs nothing for long.
    async with WatchRequest(connection.cluster.api, target, "*/*", silent=86_400.0) as response:
        async for content in lines_of(response):
            text = format_line(content.decode(errors="replace"), pod, options, namespace)
            if text:
                print(text, flush=True)


def format_line(line: str, pod: str, options: argparse.Namespace, namespace: str) -> str:
    """A line of a log for people; empty for one that was not asked for."""
    try:
        fields: Any = json.loads(line)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        # A traceback, or a log for people: what it is about is not known.
        return "" if options.about else printable(f"{pod}  {line}")
    about, level = str(fields.pop("object", "")), str(fields.pop("level", "info"))
    if level in _LEVELS and _LEVELS.index(level) < _LEVELS.index(options.level):
        return ""
    if (options.about or about) and not _is_about(about, options.about, namespace):
        return ""
    moment, message = fields.pop("time", ""), fields.pop("message", "")
    fields.pop("logger", None)
    rest = " ".join(f"{name}={value}" for name, value in fields.items())
    text = f"{moment}  {pod}  {level:7}  {about}  {message}  {rest}"
    return printable(text.rstrip()).replace("\n", " ")


def _is_about(object_: str, wanted: str | None, namespace: str) -> bool:
    kind, _, place = object_.partition("/")
    of, _, name = place.partition("/")
    if namespace and of != namespace:
        return False
    return wanted is None or f"{kind}/{name}".lower() == wanted.lower()
