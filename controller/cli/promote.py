"""`flagstaff promote`: move a tag to an artifact that was tested, by its digest."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from controller.cli import clusters
from controller.cli.arguments import add_registry_arguments, add_verify_key_argument, login_of, verify_keys
from controller.cli.printing import OK, UNREACHABLE, USAGE, Exit, exit_on, printable
from controller.cli.wait import answer, subject_of, wait_in_clusters
from controller.delivery.reach import ReachTarget
from controller.local.registries import PromoteOptions, find_candidate, promote
from controller.runtime.setbacks import Setback

if TYPE_CHECKING:
    import argparse


def configure_promote(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "target", metavar="TARGET", help="oci://HOST/REPOSITORY@sha256:…; a tag is read once, at the start"
    )
    parser.add_argument(
        "--to", required=True, metavar="TAG", dest="tag", help="the tag that is moved to the artifact"
    )
    signed = parser.add_mutually_exclusive_group(required=True)
    add_verify_key_argument(
        signed, "a public key in PEM of which one must have signed the artifact; may be repeated"
    )
    signed.add_argument("--unsigned", action="store_true", help="promote it without looking for a signature")
    parser.add_argument(
        "--after", metavar="KIND/NAME",
        help="wait until this rollout, set or configuration of the stage before serves the artifact, as "
        "flagstaff wait does",
    )  # fmt: skip
    add_registry_arguments(parser)
    clusters.add_cluster_arguments(parser, timeout=600)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what the tag points at; exit with 0, 1 where the stage before does not serve it in time, 2 for
    wrong usage, 3 if the registry refuses or the signature is not trusted.
    """
    with exit_on(USAGE, ValueError):
        wanted = PromoteOptions(
            options.target, options.tag, verify_keys(options), options.insecure, login_of(options)
        )
    with exit_on(UNREACHABLE, Setback):
        candidate = asyncio.run(find_candidate(wanted))
    by = f"signed by {candidate.signer}" if candidate.signer else "not checked for a signature"
    _say(f"{candidate.digest} is {by}")
    if options.after is not None and (code := _wait(options, candidate.digest)) != OK:
        return code
    with exit_on(UNREACHABLE, Setback):
        promoted = asyncio.run(promote(wanted, candidate.digest))
    if promoted.previous == candidate.digest:
        _say(f"the tag {wanted.tag} points at it already")
    else:
        _say(f"the tag {wanted.tag} pointed at {promoted.previous or 'nothing'} before")
    print(printable(promoted.reference))
    return OK


def _wait(options: argparse.Namespace, digest: str) -> int:
    """Wait for the stage before; return the exit code."""
    word, slash, name = options.after.partition("/")
    if not slash or not name:
        raise Exit(f"--after {options.after!r}: write KIND/NAME, such as rollout/checkout", USAGE)
    subject = subject_of(word, name, ReachTarget(digest.removeprefix("sha256:")))
    ((_, outcome),) = wait_in_clusters(options, subject).outcomes
    code, lines = answer(outcome, subject.wanted, options.timeout)
    _say(f"{options.after}: {lines[0]}")
    for line in lines[1:]:
        _say(line)
    if code != OK:
        _say(f"the tag {options.tag} was not moved")
    return code


def _say(text: str) -> None:
    print(printable(f"flagstaff promote: {text}"), file=sys.stderr)
