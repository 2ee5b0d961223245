"""Collects options: command line over environment over configuration file, with their places for messages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evaluator.flags.checking.known_operators import shorten
from evaluator.flags.checking.suggestions import did_you_mean
from evaluator.flags.syntax.document import read_document
from evaluator.settings import parsing
from evaluator.settings.options import BY_NAME, OPTIONS, Kind, Option
from evaluator.settings.settings import InvalidSettingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_FILE: Final = ".agent.yaml"
_MOST_BYTES: Final = 4_000_000
_LINKS: Final = ("tcp://", "udp://", "sctp://")
"""Kubernetes sets FLAGD_PORT=tcp://… for a Service named flagd in each pod beside it, with
FLAGD_SERVICE_HOST, FLAGD_PORT_8013_TCP and the like. None of them is meant for us.
"""
_NEVER_READ: Final = frozenset({"config"})
"""Options of the command line only."""


@dataclass(frozen=True, slots=True)
class Given:
    """An option's raw values, and where they were given."""

    where: str
    """The place, as messages name it."""
    values: tuple[object, ...]
    """A value for each time the option is given: a text, or a value of the file."""


def from_flags(flags: Mapping[str, Sequence[str]]) -> dict[str, Given]:
    """Return the given options by name; `flags` are the texts of each option of the command line."""
    return {
        name: Given(f"--{name}", tuple(texts if BY_NAME[name].many else texts[-1:]))
        for name, texts in flags.items()
    }


def from_environment(environ: Mapping[str, str]) -> tuple[dict[str, Given], list[str]]:
    """Return the options of variables that are set and not empty, and warnings about unknown variables."""
    variables = {option.variable: option for option in OPTIONS if option.name not in _NEVER_READ}
    given: dict[str, Given] = {}
    warnings: list[str] = []
    for variable, text in environ.items():
        option = variables.get(variable)
        if text.startswith(_LINKS):
            continue
        if option is not None and text:
            given[option.name] = Given(variable, (_split_words(option, text),))
        elif option is None and _is_ours(variable):
            warnings.append(f"unknown variable {variable}{did_you_mean(variable, variables)}")
    return given, warnings


def _is_ours(variable: str) -> bool:
    ours = variable.startswith(("FLAGD_", "FLAGSTAFF_"))
    return ours and not ("_PORT_" in variable or "_SERVICE_" in variable)


def from_file(path: str, environ: Mapping[str, str]) -> tuple[dict[str, Given], list[str]]:
    """Return the options of the file at `path`, else of $HOME/.agent.yaml if it exists; and warnings about
    unknown keys. As in viper, keys are converted to lower case at every depth.
    """
    file = Path(path) if path else Path(environ.get("HOME", "")) / DEFAULT_FILE
    if not path and ("HOME" not in environ or not file.is_file()):
        return {}, []
    given: dict[str, Given] = {}
    warnings: list[str] = []
    for key, value in _read(file).items():
        option = BY_NAME.get(key)
        if option is None or key in _NEVER_READ:
            warnings.append(f"{file}: unknown key {shorten(key)}{did_you_mean(key, BY_NAME)}")
        elif value is not None:
            given[key] = Given(f"{key} in {file}", (_split_words(option, value),))
    return given, warnings


def _split_words(option: Option, value: object) -> object:
    if option.kind is Kind.STRINGS and isinstance(value, str):
        return [*parsing.words(value)]
    return value


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InvalidSettingError(f"--config {file} cannot be read: {error.strerror}") from None
    document = read_document(content, file=file.name)
    if document.problems:
        problem = document.problems[0]
        raise InvalidSettingError(f"{file}:{problem.line}:{problem.column}: {problem.message}")
    if not isinstance(document.value, dict):
        raise InvalidSettingError(f"{file} must be an object of options")
    lowered: dict[str, Any] = _lower_keys(document.value)
    return lowered


def _lower_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key).lower(): _lower_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_lower_keys(item) for item in value]
    return value
