"""Arguments that several verbs share, and how they are read."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Final

from controller.cli.printing import USAGE, Exit, exit_on, reason
from controller.flagsets.compose import FailurePolicy, ProvenanceDetail
from controller.flagsets.layers import SUFFIXES
from controller.flagsets.patches import Patch
from controller.flagsets.substitution import NAME
from controller.local.local_options import LocalOptions
from evaluator.flags.model import Bucketing
from evaluator.host.times import parse_duration

PASSWORD: Final = "FLAGSTAFF_REGISTRY_PASSWORD"  # noqa: S105 - the variable's name
_LONGEST_LINE: Final = 64 * 1024
_LONGEST: Final = 86_400.0


def add_build_arguments(
    parser: argparse.ArgumentParser,
    *,
    source: str,
    reference: str,
    name: str = "source",
    nargs: str | None = None,
) -> None:
    """SOURCE and what decides the flag set that is built from it; `source` and `reference` are help texts.
    `name` may be that of an option, whose default is the current folder. `nargs`: as argparse
    has it.
    """
    if name.startswith("-"):
        parser.add_argument(name, metavar="SOURCE", default=".", help=source)
    else:
        parser.add_argument(name, metavar="SOURCE", nargs=nargs, help=source)
    parser.add_argument("--ref", metavar="REF", help=reference)
    parser.add_argument(
        "--path", action="append", default=[], metavar="P", dest="paths",
        help="a file, folder or glob of definitions; repeat for layers, base first "
        "(default: the root folder only, not subfolders; of a bucket the prefix)",
    )  # fmt: skip
    add_reading_arguments(parser)
    parser.add_argument(
        "--failure-policy", choices=[policy.value for policy in FailurePolicy], default="PerFlag",
        help="what a bad flag holds back: itself (PerFlag, the default) or the whole set (Atomic)",
    )  # fmt: skip
    parser.add_argument(
        "--bucketing", choices=[generation.value for generation in Bucketing], default="v2",
        help="generation of fractional (default v2, as in flagd) for a flag set that does not name its own",
    )  # fmt: skip


def add_policies_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for policies on changes."""
    parser.add_argument(
        "--policies", type=Path, metavar="DIR",
        help="judge flags by the policies in this folder, a file each (*.yaml, *.yml or *.json), in place of "
        "policies/ at the top",
    )  # fmt: skip


def policy_files(options: argparse.Namespace) -> list[tuple[str, bytes]] | None:
    """The files of the folder of policies that the command line names. Raises Exit."""
    if options.policies is None:
        return None
    folder: Path = options.policies
    with exit_on(USAGE, OSError):
        files = sorted(file for file in folder.iterdir() if file.name.endswith(SUFFIXES))
        contents = [(str(file), file.read_bytes()) for file in files]
    if not contents:
        raise Exit(f"{folder} has no policies: no *.yaml, *.yml or *.json", USAGE)
    return contents


def add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for how definitions are read, decrypted, verified, changed and judged."""
    add_insecure_argument(parser)
    parser.add_argument(
        "--endpoint", metavar="URL",
        help="the store of an s3:// bucket that is not in AWS, or another one of gs:// and az://; http:// is "
        "taken as it stands",
    )  # fmt: skip
    parser.add_argument("--region", metavar="NAME", help="the region of an s3:// bucket")
    add_verify_key_argument(
        parser,
        "refuse what no such public key signed: *.pub for an artifact or a bucket; *.asc, *.sshpub or "
        "allowed_signers for a repository's newest commit; may be repeated",
    )
    parser.add_argument(
        "--patch", action="append", type=lambda file: Patch(file, _content(file)), default=[],
        metavar="FILE", dest="patches",
        help="a JSON Patch, as JSON or YAML, over what the layers come to; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--substitute", action="append", type=_variable, metavar="NAME=VALUE",
        help="replace ${NAME} in values, as spec.substitute of a FlagSet does; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--age-key", type=_content, metavar="FILE",
        help="decrypt what sops encrypted with the age keys in FILE",
    )  # fmt: skip
    parser.add_argument(
        "--depends-on", action="append", default=[], metavar="PATH", dest="depends_on",
        help="definitions of another flag set whose flags these may need, as spec.dependsOn of a FlagSet "
        "names it; may be repeated",
    )  # fmt: skip
    parser.add_argument("--lenient", action="store_true", help="do not treat warnings as errors")


def substitutions(arguments: argparse.Namespace) -> dict[str, str] | None:
    """Return the variables of `--substitute`, or None without the option."""
    return None if arguments.substitute is None else dict(arguments.substitute)


def _content(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"cannot be read: {reason(error)}") from None


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(NAME, name):
        raise argparse.ArgumentTypeError(f"{name!r} is not NAME=VALUE; a name has letters, digits and _")
    return name, value


def add_verify_key_argument(parser: argparse._ActionsContainer, text: str) -> None:
    """--verify-key, for `verify_keys`; `text` is its help."""
    parser.add_argument(
        "--verify-key", action="append", type=lambda file: (file, _content(file).encode()),
        default=[], metavar="FILE", dest="verify_keys", help=text,
    )  # fmt: skip


def verify_keys(arguments: argparse.Namespace) -> dict[str, bytes]:
    """The keys of `--verify-key` by the names of their files, or by their paths where two have one name."""
    found: dict[str, bytes] = {}
    for file, content in arguments.verify_keys:
        name = Path(file).name
        found[file if name in found else name] = content
    return found


def add_insecure_argument(parser: argparse.ArgumentParser) -> None:
    """--insecure."""
    parser.add_argument(
        "--insecure", action="store_true", help="speak plain HTTP with the registry of oci://"
    )


def add_registry_arguments(parser: argparse.ArgumentParser) -> None:
    """--insecure and --username."""
    add_insecure_argument(parser)
    parser.add_argument(
        "--username", metavar="NAME",
        help=f"user at the registry; the password is read from the variable {PASSWORD}, or else from "
        "standard input (default: the login in Docker's configuration)",
    )  # fmt: skip


def login_of(arguments: argparse.Namespace) -> tuple[str, str] | None:
    """Return (username, password), or None without a username. Raises ValueError without a password."""
    if arguments.username is None:
        return None
    password = os.environ.get(PASSWORD) or sys.stdin.readline(_LONGEST_LINE).rstrip("\r\n")
    if not arguments.username or not password:
        raise ValueError(f"--username needs a password, in {PASSWORD} or on standard input")
    return arguments.username, password


def local_options(arguments: argparse.Namespace) -> LocalOptions:
    """The options of a verb that used `add_build_arguments`."""
    # Verbs that build nothing have their arguments here, too, and need not wait for the providers.
    from controller.local.local_providers import provider_of

    source = arguments.source
    state_dir: Path | None = getattr(arguments, "state_dir", None)
    return LocalOptions(
        source=source,
        reference=committed_reference(arguments.ref),
        endpoint=arguments.endpoint,
        region=arguments.region,
        paths=tuple(arguments.paths) or (provider_of(source).default_path(source),),
        depends_on=tuple(arguments.depends_on),
        insecure=arguments.insecure,
        interval=getattr(arguments, "interval", 10.0),
        patches=tuple(arguments.patches),
        substitute=substitutions(arguments),
        age_keys=arguments.age_key or "",
        verify_keys=verify_keys(arguments),
        lenient=arguments.lenient,
        policy=FailurePolicy(arguments.failure_policy),
        bucketing=Bucketing(arguments.bucketing),
        state_dir=state_dir,
        tokens=getattr(arguments, "tokens", None),
        show_bucketing=getattr(arguments, "show_bucketing", False),
        provenance=ProvenanceDetail(getattr(arguments, "provenance", ProvenanceDetail.FULL)),
        prune_guard=getattr(arguments, "prune_guard", False),
        tests=getattr(arguments, "tests", "Warn"),
        worktree=getattr(arguments, "worktree", False),
        overrides=tuple(getattr(arguments, "overrides", ())),
        rollouts=tuple(getattr(arguments, "rollouts", ())),
        rollout_files=getattr(arguments, "followed_files", None),
    )


def committed_reference(text: str | None) -> str | None:
    """`--ref` as sources take it, for which HEAD is what no reference means."""
    return None if text == "HEAD" else text


def seconds(text: str) -> float:
    """`10`, `10s`, `1m30s` or `1h` as seconds, more than 0."""
    value = parse_duration(f"{text}s" if text[-1:].isdecimal() else text)
    if value is None or not 0 < value <= _LONGEST:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a valid duration; use 10s, 1m30s or 1h, at most 24h"
        )
    return value


def port(text: str) -> int:
    """A port's number; 0 asks for any that is free."""
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; use 1 to 65535, or 0 for any that is free")
    return int(text)
