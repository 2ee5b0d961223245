"""`flagstaff rollout`: show how far a FlagRollout is, and approve, pause, promote or roll it back."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final

from controller.cli.rollouts import plan_rollout
from controller.cli.shared.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.shared.ending import OK, PROBLEM, Exit
from controller.cli.shared.output import DOCUMENTS, add_output_argument, document, follow, plain

if TYPE_CHECKING:
    import argparse

    from controller.api.objects.meta import Resource
    from controller.cli.cluster.connection import Connection

_REQUESTS: Final = {
    "approve": "let the present step end, or the candidate be promoted after the last step",
    "pause": "stay at the present step; checks go on, and roll back",
    "resume": "let a paused rollout advance again",
    "promote": "give the candidate to everybody at once",
    "abort": "roll back: give everybody the promoted definitions",
    "retry": "roll a candidate out again that failed",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs below it."""
    verbs = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    help_ = "show phase, step, share and checks"
    status = verbs.add_parser("status", help=help_, description="Show phase, step, share and checks.")
    add_output_argument(status, "text", *DOCUMENTS)
    status.set_defaults(run=run_status)
    requests = [status]
    for name, what in _REQUESTS.items():
        request = verbs.add_parser(name, help=what, description=f"{what[:1].upper()}{what[1:]}.")
        request.set_defaults(run=run_request, output="text")
        requests.append(request)
    for request in requests:
        request.add_argument("name", metavar="FLAGROLLOUT", help="the FlagRollout's name")
        watch = "keep running and show step, share and checks as they change, until Ctrl-C"
        request.add_argument("--watch", action="store_true", help=watch)
        add_cluster_arguments(request)
    plan_rollout.configure(
        verbs.add_parser(
            "plan",
            help="print what a change of flags would do",
            description="Print what a change of flags would do: steps, earliest dates, users moved.",
        )
    )


def run_status(options: argparse.Namespace) -> int:
    """0 shown; 1 no such FlagRollout; 3 no cluster."""
    with contextlib.suppress(KeyboardInterrupt):
        run_on_cluster(lambda: _show(options), doing="" if options.watch else "reading the cluster")
    return OK


def run_request(options: argparse.Namespace) -> int:
    """0 asked for, or so already; 1 no such FlagRollout, or it would have no effect; 3 no cluster."""
    print(run_on_cluster(lambda: _ask(options), verb="changed", doing="changing the FlagRollout"), flush=True)
    return run_status(options) if options.watch else OK


async def _show(options: argparse.Namespace) -> None:
    # Imported here: it takes a second or two.
    from controller.api.kinds import FLAG_ROLLOUT
    from controller.cli.cluster.cluster_view import ClusterView, update_view
    from controller.cli.cluster.connection import open_connection
    from controller.cli.shared.printing import printable

    async with open_connection(scope_of(options)) as connection, contextlib.AsyncExitStack() as stack:
        view = ClusterView()
        last = await connection.get(FLAG_ROLLOUT, options.name)
        if options.watch:
            await stack.enter_async_context(update_view(connection, (FLAG_ROLLOUT,), view))
            await view.wait_for(FLAG_ROLLOUT.kind)

        async def show() -> str:
            if not options.watch:
                return _text_of(last, options.output)
            rollout = view.objects.get(last.key)
            fault = f"the cluster cannot be read: {view.fault()}; trying again\n" if view.fault() else ""
            gone = f"FlagRollout {options.name} is gone\n"
            return printable(fault) + (gone if rollout is None else _text_of(rollout, options.output))

        await follow(show, partial(view.wait, 60.0), watch=options.watch)


def _text_of(rollout: Resource, form: str) -> str:
    from controller.cli.rollouts.rollout_view import RolloutView, as_text, view_of

    view = view_of(rollout)
    return document(plain([view], RolloutView)[0], form) if form in DOCUMENTS else as_text(view)


async def _ask(options: argparse.Namespace) -> str:
    from controller.api.kinds import FLAG_ROLLOUT
    from controller.cli.cluster.connection import open_connection
    from controller.cli.rollouts.rollout_requests import REQUESTS, RefusedRequest
    from controller.cli.shared.printing import printable
    from controller.runtime.clock import now

    async with open_connection(scope_of(options)) as connection:
        rollout = await connection.find(FLAG_ROLLOUT, connection.namespace, options.name)
        if (
            rollout is None
            and options.action == "promote"
            and await _promote_abandoned(connection, options.name)
        ):
            return printable(f"FlagRollout/{options.name} is gone: everybody gets what it held back")
        # Where there is none, `get` says so.
        rollout = rollout or await connection.get(FLAG_ROLLOUT, options.name)
        try:
            request = REQUESTS[options.action](rollout, now())
        except RefusedRequest as refusal:
            raise Exit(f"FlagRollout/{options.name}: {refusal}", PROBLEM) from None
        if request.annotations:
            await connection.merge(
                FLAG_ROLLOUT, options.name, {"metadata": {"annotations": dict(request.annotations)}}
            )
    return printable(f"FlagRollout/{options.name}: {request.message}")


async def _promote_abandoned(connection: Connection, name: str) -> bool:
    """Promote what a FlagRollout that is gone holds back; False where it holds nothing back."""
    from controller.api.kinds import FEATURE_FLAG, FEATURE_FLAG_CONFIGURATION
    from controller.api.openfeature.featureflagconfiguration import FeatureFlagStatus
    from controller.api.rollouts.flagrollout import PROMOTE

    promoted = False
    for kind in (FEATURE_FLAG_CONFIGURATION, FEATURE_FLAG):
        for target in await connection.resources(kind):
            candidates = [
                entry.candidate
                for entry in FeatureFlagStatus.of(target).rollouts or ()
                if entry.name == name and entry.phase == "Abandoned" and entry.candidate
            ]
            if candidates:
                patch = {"metadata": {"annotations": {PROMOTE: ",".join(candidates)}}}
                await connection.merge(kind, target.name, patch)
                promoted = True
    return promoted
