"""`flagstaff evaluator start …`: the command line of `flagd start`, made from the table of options."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Final, NoReturn

from evaluator.flags.text import visible
from evaluator.host import logs
from evaluator.settings import OPTIONS, InvalidSettingError, Loaded, Option, Settings, ValueKind, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evaluator.wiring import Work


_NO_SOURCE: Final = "there is no source of flags; give --uri or --sources, such as --uri file:flags.json"

_END_SECONDS: Final = 3.0


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors cannot steer a terminal."""

    def error(self, message: str) -> NoReturn:
        """Exit with 2."""
        super().error(visible(message))


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m evaluator start …`; returns the exit code: 0 stopped by a signal, 2 cannot start."""
    parser = _Parser(prog="evaluator", allow_abbrev=False)
    configure_evaluator(parser)
    options = parser.parse_args(argv)
    code: int = options.run(options)
    return code


def parse(argv: Sequence[str]) -> dict[str, list[str]]:
    """Return the texts given for each option of `start`, by name; argparse exits on errors and `--help`."""
    parser = _Parser(prog="evaluator", allow_abbrev=False)
    configure_evaluator(parser)
    return _flags(parser.parse_args(argv))


def configure_evaluator(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs `start` and `version`, and all options."""
    verbs = parser.add_subparsers(dest="evaluator_verb", metavar="VERB", required=True)
    start = verbs.add_parser(
        # The usage of sixty options would hide the message of an error above it.
        "start",
        help="serve flags",
        allow_abbrev=False,
        usage="%(prog)s [--help] [OPTION]...",
    )
    for option in OPTIONS:
        _declare(start, option)
    start.set_defaults(run=_start)
    version = verbs.add_parser("version", help="print version, commit and date")
    version.set_defaults(run=_version)


def _declare(parser: argparse.ArgumentParser, option: Option) -> None:
    names = [f"--{option.name}", *([f"-{option.short}"] if option.short else [])]
    alone = option.kind is ValueKind.SWITCH or bool(option.refusal)
    parser.add_argument(
        *names,
        dest=option.name,
        action="append",
        default=argparse.SUPPRESS,
        # pflag's switches stand alone or take `=false`; a refused option gets its reason either way.
        nargs="?" if alone else None,
        const="true" if alone else None,
        metavar="|".join(option.choices) if option.kind is ValueKind.CHOICE else option.kind.value,
        help=argparse.SUPPRESS if option.refusal else option.help,
    )


def _version(_: argparse.Namespace) -> int:
    from evaluator.host.build_version import describe_build

    print(describe_build())
    return 0


def _start(arguments: argparse.Namespace) -> int:
    try:
        loaded = load(_flags(arguments), os.environ)
    except InvalidSettingError as error:
        return _refuse(str(error))
    if not loaded.settings.sources and not loaded.settings.pods_from:
        return _refuse(_NO_SOURCE)
    return _serve(loaded)


def _end_within(seconds: float) -> None:
    """Exit `seconds` from now, even if a thread still waits for a file system that hangs."""
    import threading

    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()


def _flags(arguments: argparse.Namespace) -> dict[str, list[str]]:
    return {
        option.name: getattr(arguments, option.name) for option in OPTIONS if hasattr(arguments, option.name)
    }


def _refuse(reason: str) -> int:
    print(f"flagstaff evaluator: {visible(reason)}", file=sys.stderr)
    return 2


def _work(settings: Settings) -> Work | None:
    if settings.pods_from is None:
        return None
    from evaluator.node.node_process import serve_node

    return serve_node


def _serve(loaded: Loaded) -> int:
    import asyncio
    import gc
    import logging
    import signal

    # Until the loop has its own handler Ctrl-C ends the process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Objects that imports make stay alive; collecting them during imports is a tenth of the start time.
    gc.disable()
    from evaluator.host.loop_lag import new_event_loop
    from evaluator.wiring import run

    # The collector skips what is imported by now, which saves 7 of 200 ms.
    gc.freeze()
    gc.enable()
    settings: Settings = loaded.settings
    logs.configure(settings.log_format, settings.log_level)
    log = logging.getLogger("evaluator")
    for warning in loaded.warnings:
        log.warning(warning)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(run(settings, work=_work(settings)))
            _end_within(_END_SECONDS)
    except (OSError, InvalidSettingError) as error:
        log.error("cannot serve: %s", error)  # noqa: TRY400 - the reason is all there is to know
        return 2
    return 0
