"""`flagstaff up`: source → artifact → flag set → evaluator in one process, and what it prints."""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import logging
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO, TypeAlias

from controller.cli.arguments import add_build_arguments, local_options, port, seconds
from controller.cli.printing import OK, PROBLEM, UNREACHABLE, USAGE, Exit, exit_on, printable, short
from controller.cli.problems import as_object, failures
from controller.flagsets.compose import ProvenanceDetail
from controller.local.local_events import (
    LeaderServes,
    LocalEvent,
    OverridesChanged,
    Restored,
    RevisionBuilt,
    RolloutFilesRead,
    RolloutHappened,
    SourceChecked,
)
from controller.local.local_mode import InvalidSettingError, Ports, Settings, evaluator_settings, open_local
from controller.local.local_stages import build_once
from controller.runtime.clock import now
from controller.runtime.setbacks import Setback, Stalled
from evaluator.flags.overrides import Override
from evaluator.flags.text import visible
from evaluator.host.loop_lag import new_event_loop
from evaluator.host.signals import stop_at_signals, work_until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from contextlib import AbstractAsyncContextManager

    from controller.local.local_options import LocalOptions, RolloutFiles


def _write(out: TextIO, line: str) -> None:
    """Write a line; a full disk keeps it for the next one. Raises OSError where the reader is gone."""
    try:
        out.write(line + "\n")
        out.flush()
    except OSError as error:
        # Serving must not end because its output cannot be written.
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise


class JsonReport:
    """One object a line, flushed, for programs."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def _say(self, **fields: Any) -> None:
        _write(self._out, printable(json.dumps(fields, ensure_ascii=False)))

    def report_ports(self, ports: Ports, source: str) -> None:
        """Print nothing: programs wait for `ready`."""

    def ready(self, ports: Ports) -> None:
        """Print the address to connect to."""
        self._say(event="ready", ports=asdict(ports))

    def revision(self, built: RevisionBuilt) -> None:
        """Print a revision's changes and problems."""
        made = built.composition
        self._say(
            event="revision",
            revision=built.revision,
            digest=made.digest,
            author=built.author,
            subject=built.subject,
            added=list(made.changed.added),
            changed=sorted(made.changed.changed),
            removed=list(made.changed.removed),
            held=list(made.held),
            problems=[as_object(problem) for problem in made.problems],
            uncommitted=list(built.uncommitted),
        )

    def source_down(self, message: str) -> None:
        """Say that the source is down."""
        self._say(event="source", state="down", message=message)

    def event(self, event: LocalEvent) -> None:
        """Say one event."""
        match event:
            case RevisionBuilt():
                self.revision(event)
            case SourceChecked(reason=""):
                self._say(event="source", state="up", message=event.message)
            case SourceChecked():
                self.source_down(event.message)
            case RolloutHappened():
                self._say(event="rollout", **asdict(event))
            case RolloutFilesRead(refused, rollouts, overrides):
                state = "refused" if refused else "applied"
                self._say(
                    event="rollout-files", state=state, message=refused,
                    rollouts=list(rollouts), overrides=list(overrides),
                )  # fmt: skip
            case OverridesChanged(message, active):
                self._say(event="overrides", state="active" if active else "ended", message=message)
            case LeaderServes():
                self._say(event="followed", **asdict(event))
            case Restored():
                pass  # `ready` has reported it; the revision follows once the source answers


class TextReport:
    """A few lines an event, for people."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def _say(self, line: str) -> None:
        _write(self._out, line)

    def report_ports(self, ports: Ports, source: str) -> None:
        """Print the address that clients connect to."""
        self._say(
            f"{source}: gRPC {ports.grpc}, sync {ports.sync}, OFREP {ports.ofrep}, "
            f"management {ports.management}"
        )

    def ready(self, ports: Ports) -> None:
        """Print that flags are served, and where people see them."""
        self._say(f"ready; the page of the flags is http://localhost:{ports.management}/ui")

    def revision(self, built: RevisionBuilt) -> None:
        """Print the commit, its changes, and its problems."""
        made = built.composition
        words = (short(built.revision), built.author, repr(built.subject) if built.subject else "")
        self._say("  ".join(word for word in words if word))
        for sign, keys in (
            ("+", made.changed.added),
            ("~", sorted(made.changed.changed)),
            ("-", made.changed.removed),
        ):
            if keys:
                self._say(f"  {sign} {_shorten_list(keys)}")
        for problem in made.problems:
            self._say(f"  {problem}")
            if (blame := built.blames.get(problem)) is not None:
                self._say(f"    last changed in {blame.commit[:12]} {blame.subject!r} by {blame.author}")
        if built.removal is not None and made.accepted:
            self._say(f"  warning: {built.removal}")
        if made.held:
            self._say(f"  kept at the last good definition: {_shorten_list(made.held)}")
        if made.missing:
            self._say(f"  not served, for lack of a good definition: {_shorten_list(made.missing)}")
        if built.uncommitted:
            self._say(f"  not committed, so not served: {_shorten_list(built.uncommitted)}")
        if line := _outcome(built):
            self._say(f"  {line}")

    def source_down(self, message: str) -> None:
        """Say that the source is down."""
        self._say(f"source down: {message}")

    def event(self, event: LocalEvent) -> None:
        """Say one event."""
        match event:
            case RevisionBuilt():
                self.revision(event)
            case SourceChecked(reason=""):
                self._say(f"source up: {event.message}")
            case SourceChecked():
                self.source_down(
                    f"{event.message}; retrying, and serving the last good flags if there are any"
                )
            case RolloutHappened(rollout, reason, message, warning, candidate):
                mark = "warning: " if warning else ""
                about = f" [candidate {short(candidate)}]" if candidate else ""
                self._say(visible(f"FlagRollout {rollout}: {mark}{reason}: {short(message)}{about}"))
            case RolloutFilesRead("", rollouts, overrides):
                named = [f"FlagRollout {name}" for name in rollouts]
                named += [f"FlagOverride {name}" for name in overrides]
                self._say(f"--rollout: read {_shorten_list(named)}")
            case OverridesChanged(message, active):
                self._say(visible(f"override {'in force' if active else 'ended'}: {message}"))
            case RolloutFilesRead(refused):
                self._say(
                    "--rollout: the changed files are refused, and the last good ones stay in force; "
                    "correct what is wrong:"
                )
                for line in refused.splitlines():
                    self._say(f"  {visible(line)}")
            case LeaderServes(revision, _, flags):
                self._say(f"serving {short(revision) or 'no revision'} as followed: {flags} flags")
            case Restored(saved):
                age = int((now() - saved.saved_at).total_seconds())
                revision = short(saved.revision) if saved.revision else "unknown revision"
                self._say(f"serving the last good flags from disk: {revision}, saved {age} s ago")


Report: TypeAlias = JsonReport | TextReport


class Server(Protocol):
    """What serves until it is cancelled."""

    @property
    def display_name(self) -> str:
        """What is served, for people."""

    def run(self) -> Coroutine[Any, Any, None]:
        """Serve. Raises what the report of events raises."""


if TYPE_CHECKING:
    Opened: TypeAlias = AbstractAsyncContextManager[tuple[Server, Ports]]
    Open: TypeAlias = Callable[[Callable[[LocalEvent], None]], Opened]


def _outcome(built: RevisionBuilt) -> str | None:
    """Return the outcome for the revision as a whole, where the lists of flags do not show it."""
    made = built.composition
    if not made.accepted:
        if built.removal is not None:
            return "refused by --prune-guard; restart without that option to serve it"
        if built.serving:
            return "refused; the last good flag set is still served"
        return "refused; there is no earlier good flag set, so nothing is served"
    if not made.flag_set.flags:
        return "the flag set has no flags"
    return None if made.changed else "no flag changed"


def _shorten_list(keys: Sequence[str], most: int = 12) -> str:
    rest = len(keys) - most
    return visible(", ".join(keys[:most])) + (f" and {rest} more" if rest > 0 else "")


def configure_up(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    _add_sources(parser)
    _add_addresses(parser)
    _add_serving(parser)
    parser.set_defaults(run=partial(run, parser.get_default))


def _add_sources(parser: argparse.ArgumentParser) -> None:
    add_build_arguments(
        parser,
        source="a Git repository: a path, or a file, https or ssh URL; or oci://HOST/REPOSITORY:TAG; or a "
        "bucket: s3://BUCKET/PREFIX, gs://… or az://…",
        reference="branch (default: the repository's own), or tag:NAME, semver:RANGE, name:refs/…, "
        "commit:SHA; of an artifact tag:NAME, semver:RANGE, digest:SHA",
        nargs="?",
    )
    parser.add_argument(
        "--follow", metavar="ADDRESS",
        help="serve what another `flagstaff up` serves, in place of a SOURCE: grpc://HOST:PORT of its sync "
        "port, or grpcs:// with TLS, or a source as --sources of an evaluator has it, with a token or "
        "certificates",
    )  # fmt: skip
    parser.add_argument(
        "--interval", type=seconds, default=10.0, metavar="TIME",
        help="how often to look for what is new in a remote or a bucket; a local repository is watched "
        "(default 10s)",
    )  # fmt: skip


def _add_serving(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state-dir", type=Path, metavar="DIR",
        help="keep the last good flags here, and start with them when SOURCE cannot be read; for one SOURCE, "
        "--ref and --path only, and one process at a time",
    )  # fmt: skip
    parser.add_argument(
        "--tokens", type=Path, metavar="FILE",
        help="who may read flags and report at the sync port: bearer tokens, a line each: NAME TOKEN for the "
        "evaluator of that name, or a token alone; it is read again when it changes",
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
        "--tests", choices=["Require", "Warn", "Off"], default="Warn",
        help="what a failing test of a flag is worth: it holds the flag back (Require), is reported (Warn, "
        "the default), or is not run (Off)",
    )  # fmt: skip
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
    from controller.cli.manifests import judge, read_manifests

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
    from controller.cli.manifests import STDIN
    from controller.local.local_options import RolloutFiles

    paths = tuple(Path(file).absolute() for file in files)
    if STDIN in files or not all(path.is_file() or path.is_dir() for path in paths):
        return None
    return RolloutFiles(paths, partial(_manifests, files))


_OF_FOLLOWERS: Final = frozenset({
    "follow", "host", "port", "sync_port", "ofrep_port", "management_port", "state_dir", "tokens", "output",
    "run", "verb", "version",
})  # fmt: skip
"""What a follower may be given."""
_OPTIONS: Final = {
    "source": "SOURCE", "paths": "--path", "patches": "--patch", "overrides": "--override",
    "rollout_files": "--rollout",
}  # fmt: skip
"""How options are written whose names differ from it."""


def _require_followers_options(arguments: argparse.Namespace, default: Callable[[str], object]) -> None:
    """Raises Exit for what a follower does not decide."""
    refused = [
        _OPTIONS.get(name, "--" + name.replace("_", "-"))
        for name, value in vars(arguments).items()
        if name not in _OF_FOLLOWERS and value != default(name)
    ]
    if refused:
        raise Exit(
            f"--follow excludes {', '.join(refused)}: the other `flagstaff up` decides what is served; "
            "give it there",
            USAGE,
        )


def run(default: Callable[[str], object], arguments: argparse.Namespace) -> int:
    """Serve until a signal comes; with --once, report one pass. `default`: of an option, by its name."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    if arguments.follow is not None:
        _require_followers_options(arguments, default)
        return _run_server(partial(_open_follower, arguments), _report_of(arguments))
    if arguments.source is None:
        raise Exit("give a SOURCE, or --follow ADDRESS", USAGE)
    if arguments.rollout_files:
        with exit_on(USAGE, Stalled):
            arguments.rollouts = _manifests(arguments.rollout_files)
        arguments.followed_files = _followed_files(arguments.rollout_files)
    options = local_options(arguments)
    report = _report_of(arguments)
    if arguments.once:
        return asyncio.run(_once(options, report))
    return _run_server(partial(_open_local, options, arguments), report)


def _report_of(arguments: argparse.Namespace) -> Report:
    return JsonReport(sys.stdout) if arguments.output == "json" else TextReport(sys.stdout)


def _run_server(open_server: Open, report: Report) -> int:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(open_server, report))


async def _once(options: LocalOptions, report: Report) -> int:
    try:
        built = await build_once(options)
    except Setback as setback:
        report.source_down(setback.message)
        return UNREACHABLE
    report.revision(built)
    return PROBLEM if failures(built.composition.problems, lenient=options.lenient) else OK


def _open_local(
    options: LocalOptions, arguments: argparse.Namespace, on_event: Callable[[LocalEvent], None]
) -> Opened:
    return open_local(options, _settings(arguments), on_event)


def _open_follower(arguments: argparse.Namespace, on_event: Callable[[LocalEvent], None]) -> Opened:
    # Imported here: a leader follows nobody.
    from controller.local.local_follower import leader_of, open_follower

    settings = replace(_settings(arguments), state_dir=arguments.state_dir)
    return open_follower(leader_of(arguments.follow), arguments.tokens, settings, on_event)


def _settings(arguments: argparse.Namespace) -> Settings:
    """Raises InvalidSettingError."""
    return evaluator_settings(
        host=arguments.host,
        port=arguments.port,
        sync_port=arguments.sync_port,
        ofrep_port=arguments.ofrep_port,
        management_port=arguments.management_port,
    )


async def _serve(open_server: Open, report: Report) -> int:
    ready = False

    def on_event(event: LocalEvent) -> None:
        nonlocal ready
        if not ready and _is_served(event):
            ready = True
            report.ready(ports)
        report.event(event)

    with exit_on(USAGE, OSError, InvalidSettingError), exit_on(UNREACHABLE, Setback):
        async with open_server(on_event) as (local, ports):
            report.report_ports(ports, local.display_name)
            await work_until(stop_at_signals(), local.run())
    return OK


def _is_served(event: LocalEvent) -> bool:
    match event:
        case RevisionBuilt(composition=made):
            return made.accepted
        case Restored() | LeaderServes():
            return True
        case _:
            return False
