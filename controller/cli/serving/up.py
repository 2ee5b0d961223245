"""`flagstaff up`: source → artifact → flag set → evaluator in one process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from controller.cli.shared.arguments import add_build_arguments, local_options, port, seconds
from controller.cli.shared.ending import OK, PROBLEM, UNREACHABLE, USAGE, Exit, exit_on
from controller.cli.shared.problems import failures
from controller.cli.shared.report import JsonReport, Report, TextReport
from controller.flagsets.building.commit_provenance import ProvenanceDetail
from controller.local.local_mode import InvalidSettingError, evaluator_settings, open_local
from controller.local.stages.local_events import LocalEvent, Restored, RevisionBuilt
from controller.local.stages.opened_stages import build_once
from controller.runtime.process.stop_signals import stop_at_signals, work_until
from controller.runtime.reconciling.setbacks import Setback, Stalled
from evaluator.flags.overrides import Override

if TYPE_CHECKING:
    from controller.local.local_options import LocalOptions
    from controller.local.rollouts.rollout_files import RolloutFiles


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_build_arguments(
        parser,
        source="a Git repository: a path, or a file, https or ssh URL; or oci://HOST/REPOSITORY:TAG; or a "
        "bucket: s3://BUCKET/PREFIX, gs://… or az://…",
        reference="branch (default: the repository's own), or tag:NAME, semver:RANGE, name:refs/…, "
        "commit:SHA; of an artifact tag:NAME, semver:RANGE, digest:SHA",
    )
    parser.add_argument(
        "--interval", type=seconds, default=10.0, metavar="TIME",
        help="how often to look for what is new in a remote or a bucket; a local repository is watched "
        "(default 10s)",
    )  # fmt: skip
    _add_addresses(parser)
    parser.add_argument(
        "--state-dir", type=Path, metavar="DIR",
        help="keep the last good flags here, and start with them when SOURCE cannot be read; for one SOURCE, "
        "--ref and --path only, and one process at a time",
    )  # fmt: skip
    parser.add_argument(
        "--worktree", action="store_true",
        help="serve the files of a folder as they are on disk, committed or not; their revision is "
        "worktree@sha256:…",
    )  # fmt: skip
    parser.add_argument(
        "--override", action="append", default=[], type=_override, dest="overrides", metavar="FLAG=VARIANT",
        help="serve this variant of a flag, whatever its definition says; repeat for others",
    )  # fmt: skip
    parser.add_argument(
        "--rollout", action="append", default=[], dest="rollout_files", metavar="FILE",
        help="roll changes out in steps as the FlagRollouts in this file say; it also has the "
        "MetricTemplates, the Secrets that these name, and FlagOverrides; it is read again when it changes; "
        "repeat for others",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="check the current revision without serving it")
    parser.add_argument(
        "--prune-guard", action="store_true",
        help="refuse a revision that removes all flags, or more than a quarter and at least five of them; "
        "without it such a revision is served, with a warning",
    )  # fmt: skip
    parser.add_argument(
        "--provenance", choices=[detail.value for detail in ProvenanceDetail], default="full",
        help="what every answer says of its commit: revision, time and author (full, the default), or "
        "revision and time only (commit)",
    )  # fmt: skip
    parser.add_argument(
        "--show-bucketing",
        action="store_true",
        help="name the generation of fractional in every answer's metadata",
    )
    parser.add_argument(
        "-o", "--output", choices=["text", "json"], default="text",
        help="lines for people (default), or one JSON object a line",
    )  # fmt: skip
    parser.add_argument("--json", action="store_const", const="json", dest="output", help="as -o json")
    parser.set_defaults(run=run)


def _add_addresses(parser: argparse.ArgumentParser) -> None:
    for name, default, what in (
        ("--port", 8013, "gRPC (flagd.evaluation)"),
        ("--sync-port", 8015, "flagd.sync.v1, for in-process providers"),
        ("--ofrep-port", 8016, "OFREP"),
        ("--management-port", 8014, "health and metrics"),
    ):
        parser.add_argument(
            name, type=port, default=None, metavar="N",
            help=f"{what}; 0 takes a free port (default {default})",
        )  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default loopback)")


def _override(text: str) -> Override:
    flag, equals, variant = text.rpartition("=")
    if not (equals and flag and variant):
        raise argparse.ArgumentTypeError(f"{text!r} is not FLAG=VARIANT, such as new-checkout=off")
    return Override(f"--override {text}", flag, variant, "set on the command line", None)


def _manifests(files: list[str]) -> list[dict[str, Any]]:
    """The objects in the files of --rollout. Raises Stalled for what a cluster would refuse."""
    # Imported here: most runs have none.
    from controller.api.kinds import FLAG_ROLLOUT
    from controller.cli.manifests.manifest_files import read_manifests
    from controller.cli.manifests.manifest_problems import judge

    try:
        manifests = [manifest for manifest in read_manifests(files) if manifest.is_object]
    except Exit as unreadable:
        raise Stalled("Unreadable", str(unreadable)) from None
    if problems := [*map(str, judge(manifests).problems)]:
        raise Stalled("InvalidSpec", "\n".join(["--rollout: these manifests cannot be used", *problems]))
    if not any(manifest.body["kind"] == FLAG_ROLLOUT.kind for manifest in manifests):
        raise Stalled("InvalidSpec", f"--rollout: there is no FlagRollout in {', '.join(files)}")
    return [manifest.body for manifest in manifests]


def _followed_files(files: list[str]) -> RolloutFiles | None:
    """The files of --rollout; None where standard input or a pipe is one, which cannot be read again."""
    from controller.cli.manifests.manifest_files import STDIN
    from controller.local.rollouts.rollout_files import RolloutFiles

    paths = tuple(Path(file).absolute() for file in files)
    if STDIN in files or not all(path.is_file() or path.is_dir() for path in paths):
        return None
    return RolloutFiles(paths, partial(_manifests, files))


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes; with --once, report one pass."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    if arguments.rollout_files:
        with exit_on(USAGE, Stalled):
            arguments.rollouts = _manifests(arguments.rollout_files)
        arguments.followed_files = _followed_files(arguments.rollout_files)
    options = local_options(arguments)
    report: Report = JsonReport(sys.stdout) if arguments.output == "json" else TextReport(sys.stdout)
    if arguments.once:
        return asyncio.run(_once(options, report))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(options, arguments, report))


async def _once(options: LocalOptions, report: Report) -> int:
    try:
        built = await build_once(options)
    except Setback as setback:
        report.source_down(setback.message)
        return UNREACHABLE
    report.revision(built)
    return PROBLEM if failures(built.composition.problems, lenient=options.lenient) else OK


async def _serve(options: LocalOptions, arguments: argparse.Namespace, report: Report) -> int:
    ready = False

    def on_event(event: LocalEvent) -> None:
        nonlocal ready
        if not ready and _is_served(event):
            ready = True
            report.ready(ports)
        report.event(event)

    with exit_on(USAGE, OSError, InvalidSettingError), exit_on(UNREACHABLE, Setback):
        settings = evaluator_settings(
            host=arguments.host,
            port=arguments.port,
            sync_port=arguments.sync_port,
            ofrep_port=arguments.ofrep_port,
            management_port=arguments.management_port,
        )
        async with open_local(options, settings, on_event) as (local, ports):
            report.report_ports(ports, local.display_name)
            await work_until(stop_at_signals(), local.run())
    return OK


def _is_served(event: LocalEvent) -> bool:
    match event:
        case RevisionBuilt(composition=made):
            return made.accepted
        case Restored():
            return True
        case _:
            return False
