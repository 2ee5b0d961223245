"""What `flagstaff up` prints: text for people, JSON lines for programs (docs/up-events.schema.json)."""

from __future__ import annotations

import errno
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from controller.cli.shared.printing import printable, short
from controller.cli.shared.problems import as_object
from controller.local.stages.local_events import (
    LocalEvent,
    OverridesChanged,
    Restored,
    RevisionBuilt,
    RolloutFilesRead,
    RolloutHappened,
    SourceChecked,
)
from controller.runtime.clock import now
from evaluator.flags.syntax.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.local.local_mode import Ports


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
            case Restored(saved):
                age = int((now() - saved.saved_at).total_seconds())
                revision = short(saved.revision) if saved.revision else "unknown revision"
                self._say(f"serving the last good flags from disk: {revision}, saved {age} s ago")


Report: TypeAlias = JsonReport | TextReport


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
