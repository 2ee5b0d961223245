"""The flags in a workload's annotation, judged by the parser that serves. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.delivery.written_flags import CHARACTERS, MOST_NAMED, refusals, summary
from controller.pods.settings.installation import Refused
from controller.runtime.user_text.plain_text import one_line
from evaluator.flags.layers.merge import parse
from evaluator.flags.model import BUCKETING_KEY, PROVENANCE_PREFIX
from evaluator.flags.syntax.text import json_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evaluator.flags.model import FlagSet
    from evaluator.flags.syntax.problems import Problem

MOST_BYTES: Final = 64 * 1024
"""Of the annotation: `kubectl apply` keeps a second copy with escaped quotes, and all annotations of an
object have 256 KiB.
"""
MOST_APPLIED: Final = 128 * 1024
"""Of the annotation, where server-side apply writes it, which keeps no copy."""
_JSON: Final = re.compile(r"\s*(\{\s*[\"}]|\[|$)")
"""The beginning of a JSON document; anything else is read as YAML, of which JSON is a part."""


class DirectFlags(NamedTuple):
    """The flags of an annotation."""

    flag_set: FlagSet
    warnings: tuple[str, ...]
    """Warnings for the user who applies the workload."""


def read_flags(text: str, where: str, most: int = MOST_BYTES) -> DirectFlags:
    """Read flagd's document, JSON or YAML. `where`: what the message begins with; `most`: bytes of the text.
    Takes up to a second. Raises Refused, with line and JSON path of each problem.
    """
    content = text.encode(errors="surrogatepass")
    if len(content) > most:
        advice = (
            "apply it with kubectl apply --server-side, which allows "
            f"{MOST_APPLIED // 1024} KiB, or keep the flags in a FlagSet"
            if most < MOST_APPLIED and len(content) <= MOST_APPLIED
            else "keep the flags in a FlagSet"
        )
        raise Refused(
            f"{where}: has {len(content)} bytes, more than {most}; {advice} and name it with "
            "flagstaff.dev/flagset"
        )
    name = "flags.json" if _JSON.match(text) else "flags.yaml"
    try:
        parsed = parse(content, file=name)
    except RecursionError:
        raise Refused(f"{where}: the flags are nested too deeply to be read; make them flatter") from None
    problems = (*parsed.problems, *parsed.notes)
    bad = [_text(problem) for problem in refusals(problems)] or [*_reserved_keys(parsed.flag_set)]
    if bad:
        raise Refused(f"{where}: {summary(bad)}")
    return DirectFlags(
        parsed.flag_set, tuple(f"{where}: {_text(problem)}" for problem in problems[:MOST_NAMED])
    )


def warnings_of(text: str, where: str, most: int) -> tuple[str, ...]:
    """The warnings of `read_flags`. Raises Refused as it does."""
    return read_flags(text, where, most).warnings


def _reserved_keys(flag_set: FlagSet) -> Iterator[str]:
    """The texts about metadata that Flagstaff alone writes."""
    flags = ((("flags", key, "metadata"), flag.metadata) for key, flag in flag_set.flags.items())
    for path, metadata in ((("metadata",), flag_set.metadata), *flags):
        for name in metadata:
            if name.startswith(PROVENANCE_PREFIX) and (name, path) != (BUCKETING_KEY, ("metadata",)):
                yield one_line(
                    f"{json_path((*path, name))}: is written by Flagstaff alone; remove it", CHARACTERS
                )


def _text(problem: Problem) -> str:
    """`line 4: $.flags.banner: …`, as far as the place is known."""
    line = f"line {problem.line}" if problem.line else ""
    path = problem.path if problem.path != "$" else ""
    return one_line(": ".join(filter(None, (line, path, problem.message))), CHARACTERS)
