"""Arguments that several verbs share, and how they are read."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from controller.wiring.local import FailurePolicy, LocalOptions
from evaluator.flags.model import Bucketing

if TYPE_CHECKING:
    from pathlib import Path


def add_build_arguments(parser: argparse.ArgumentParser) -> None:
    """SOURCE and what decides the flag set that is built from it."""
    parser.add_argument(
        "source", metavar="SOURCE", help="a Git repository: a path, or a file, https or ssh URL"
    )
    parser.add_argument(
        "--ref", metavar="REF",
        help="branch (default: the repository's own), or tag:NAME, semver:RANGE, name:refs/…, commit:SHA",
    )  # fmt: skip
    parser.add_argument(
        "--path", action="append", default=[], metavar="P", dest="paths",
        help="a file, folder or glob of definitions; repeat for layers, base first (default: the root)",
    )  # fmt: skip
    parser.add_argument("--lenient", action="store_true", help="warnings do not count as failures")
    parser.add_argument(
        "--failure-policy", choices=[policy.value for policy in FailurePolicy], default="PerFlag",
        help="what a bad flag holds back: itself (PerFlag, the default) or the whole set (Atomic)",
    )  # fmt: skip
    parser.add_argument(
        "--bucketing", choices=[generation.value for generation in Bucketing], default="v2",
        help="generation of fractional (default v2, as the flagd server) for a set that does not pin its own",
    )  # fmt: skip


def local_options(arguments: argparse.Namespace) -> LocalOptions:
    """The options of a verb that used `add_build_arguments`."""
    state_dir: Path | None = getattr(arguments, "state_dir", None)
    return LocalOptions(
        source=arguments.source,
        reference=arguments.ref,
        paths=tuple(arguments.paths) or (".",),
        interval=getattr(arguments, "interval", 10.0),
        lenient=arguments.lenient,
        policy=FailurePolicy(arguments.failure_policy),
        bucketing=Bucketing(arguments.bucketing),
        state_dir=state_dir,
        show_bucketing=getattr(arguments, "show_bucketing", False),
    )


def seconds(text: str) -> float:
    """`10`, `10s`, `1m` or `1h` as seconds, more than 0."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        value = float(number) * unit
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write 10s, 1m or 1h") from None
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range; choose between 0 and 24h")
    return value
