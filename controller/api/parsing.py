"""Parsers of the texts in specs, for those who validate a spec and those who use it. Pure.

Patterns that users write are regular expressions in RE2's syntax, whose search takes time in proportion to
the text, and patterns of files as in .gitignore.
"""

from __future__ import annotations

import re
from functools import lru_cache
from string import Template
from typing import TYPE_CHECKING, Final

import re2
from pathspec import GitIgnoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


INVALID: Final = "InvalidSpec"
"""The reason of an error that names none of its own."""


class InvalidTextError(ValueError):
    """A text that a user wrote cannot be used. Its own text says why, and what to write."""

    def __init__(self, message: str, reason: str = INVALID) -> None:
        """`reason`: that of the condition of an object that has this text; CamelCase and stable."""
        super().__init__(message)
        self.reason = reason


OBJECT_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""The name of an object (RFC 1123, subdomain). Any other name could change the path of a request: clients
resolve `..`, and proxies may decode an escaped slash.
"""


def require_object_name(name: str) -> None:
    """Raise InvalidTextError for what can be no object's name."""
    if not OBJECT_NAME.fullmatch(name):
        raise InvalidTextError("must be an object's name: lower-case letters, digits, - and .")


def normalise(path: str) -> str:
    """The path without `./`, doubled or trailing `/`; `` is the root. Raises InvalidTextError."""
    if path.startswith("/"):
        raise InvalidTextError("absolute path; write it from the root of the repository")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if ".." in parts or "\0" in path:
        raise InvalidTextError("leads out of the repository; remove the `..`")
    return "/".join(parts)


def is_within_source(path: str) -> bool:
    """Whether a folder's path leads out of its source neither by a `/` at its start nor by `..`."""
    return not path.startswith("/") and ".." not in path.split("/")


SMALL: Final = 1 << 18
"""Bytes of a compiled expression: some 10,000 instructions. RE2's own bound is 32 times as much, and takes a
second to reach.
"""

MOST_PATTERNS: Final = 1_000
LONGEST_PATTERN: Final = 1_000
"""Characters of a pattern of files."""

_ALWAYS: Final = (".git/", ".gitignore", ".gitmodules", ".gitattributes")
_DEFAULT: Final = (
    "*.jpg", "*.jpeg", "*.gif", "*.png", "*.wmv", "*.flv", "*.tar.gz", "*.zip",
    ".github/", ".circleci/", ".travis.yml", ".gitlab-ci.yml", "appveyor.yml", ".drone.yml",
    "cloudbuild.yaml", "codeship-services.yml", "codeship-steps.yml",
    "**/.goreleaser.yml", "**/.sops.yaml", "**/.flux.yaml",
)  # fmt: skip
"""Files that are ignored where the source has no patterns of its own, as with Flux."""


def compile_pattern(pattern: str, memory: int = SMALL) -> re2._Regexp:
    """Compile an RE2 expression. Raises InvalidTextError; also if it needs more than `memory` bytes."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory
    try:
        # re2.compile() keeps 128 of them, for every tenant's expressions.
        return re2._Regexp(pattern, options)  # noqa: SLF001 - re2 names its type nowhere else
    except re2.error as error:
        why = error.args[0] if error.args else ""
        why = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
    except UnicodeEncodeError:
        why = "it is not Unicode text"
    raise InvalidTextError(f"not an RE2 expression: {why[:200]}")


def require_somebody(pattern: str) -> None:
    """Raise InvalidTextError for what is no expression, or finds something in every text."""
    if compile_pattern(pattern).search("") is not None:
        raise InvalidTextError("matches everybody; write who must have signed")


def of_files(patterns: Iterable[str]) -> GitIgnoreSpec:
    """Compile patterns of files. Raises InvalidTextError; also for too many, or one that is too long."""
    patterns = list(patterns)
    if len(patterns) > MOST_PATTERNS or any(len(pattern) > LONGEST_PATTERN for pattern in patterns):
        raise InvalidTextError(
            f"cannot be read as patterns: there may be {MOST_PATTERNS}, of {LONGEST_PATTERN} characters each"
        )
    # Python's own expressions take exponential time for `*a*a*a*a*b`, and let no other thread run meanwhile.
    try:
        return GitIgnoreSpec.from_lines(patterns, backend="re2")
    except (ValueError, re.error, re2.error) as error:
        raise InvalidTextError(f"cannot be read as patterns: {str(error)[:200]}") from error


@lru_cache(maxsize=128)
def ignore_patterns(patterns: str | None) -> GitIgnoreSpec:
    """Return what these lines, or the defaults, exclude from an artifact. Raises InvalidTextError."""
    return of_files((*_ALWAYS, *(_DEFAULT if patterns is None else patterns.splitlines())))


NAMES: Final = frozenset(
    {
        "alert", "author", "changes", "digest", "kind", "link", "message", "name", "namespace", "page",
        "reason", "revision", "severity", "state", "subject", "summary",
    }
)  # fmt: skip


class MessageTemplate(Template):
    """A text with `$name` and `${name}`."""

    flags = re.RegexFlag(0)
    idpattern = r"[a-z]+"


def check(text: str) -> None:
    """Raise InvalidTextError for a name that is not known, and for a `$` that begins none, with its place as
    `line:column: why`.
    """
    for match in MessageTemplate.pattern.finditer(text):
        name = match["named"] or match["braced"]
        if match["invalid"] is not None:
            raise InvalidTextError(f"{_place(text, match.start())}: write $$ for a $ that begins no name")
        if name is not None and name not in NAMES:
            listed = ", ".join(sorted(NAMES))
            raise InvalidTextError(
                f'{_place(text, match.start())}: "{name[:64]}" is not known; there is {listed}'
            )


def _place(text: str, position: int) -> str:
    before = text[:position]
    return f"{before.count(chr(10)) + 1}:{position - (before.rfind(chr(10)) + 1) + 1}"


VARIABLES: Final = (
    "arm", "flag", "flags", "interval", "name", "namespace", "revision", "target", "variant",
)  # fmt: skip
"""All but `variables.NAME`."""
_GIVEN: Final = "variables."
_PLACE: Final = re.compile(r"\{\{-?((?:(?!\}\}).){0,256})\}\}", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_SHOWN: Final = 64


class QueryError(InvalidTextError):
    """A query cannot be written out; the text says why."""


def names_in(query: str) -> tuple[str, ...]:
    """Return the variables of a query in their order. Raises QueryError for what is none."""
    rest = _PLACE.sub("", query)
    if "{{" in rest or "}}" in rest:
        raise QueryError("has {{ or }} without the other")
    return tuple(_name(place[1]) for place in _PLACE.finditer(query))


def require_query(query: str) -> None:
    """Raise QueryError for a query with variables that do not exist."""
    names_in(query)


def render(
    query: str,
    values: Mapping[str, str],
    given: Mapping[str, str],
    written: Callable[[str], str] = lambda value: value,
) -> str:
    """Return the query with its variables written out. `values`: of VARIABLES; `given`: of `variables.NAME`;
    `written`: how a value is written in this kind of query. Raises QueryError for a variable without a value.
    """
    names_in(query)

    def value(place: re.Match[str]) -> str:
        name = _name(place[1])
        known = given if name.startswith(_GIVEN) else values
        if (text := known.get(name.removeprefix(_GIVEN))) is None:
            todo = "set it in templateVariables" if name.startswith(_GIVEN) else "this check has none"
            raise QueryError(f"{{{{ {name} }}}} has no value; {todo}")
        return written(text)

    return _PLACE.sub(value, query)


def _name(text: str) -> str:
    """Return the name between the braces. Raises QueryError."""
    name = text.removesuffix("-").strip()
    own = name.removeprefix(_GIVEN)
    if name in VARIABLES or (name != own and _NAME.fullmatch(own)):
        return name
    shown = name[:_SHOWN] if name.isprintable() else "…"
    raise QueryError(f"{{{{ {shown} }}}} is no variable; there are {', '.join(VARIABLES)} and {_GIVEN}NAME")
