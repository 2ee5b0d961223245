"""Messages about names that are not known. Each may cost a search, so they are made for what is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evaluator.flags.checking.known_operators import shorten
from evaluator.flags.checking.suggestions import Suggestions, Words, comparison_hint, similar_word
from evaluator.flags.checking.versions import COMPARISONS
from evaluator.flags.model import State
from evaluator.flags.syntax.text import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.flags.model import Json

FLAGD_VARIABLES: Final = ("$flagd.timestamp", "$flagd.flagKey")
_VARIABLE_WORDS: Final = Words(FLAGD_VARIABLES)
_STATE_WORDS: Final = Words(state.value for state in State)
_STATE_HABITS: Final = {
    **dict.fromkeys(("on", "true", "yes", "active", "enable"), "ENABLED"),
    **dict.fromkeys(("off", "false", "no", "inactive", "disable"), "DISABLED"),
}


def unknown_operator(name: str, suggestions: Suggestions) -> str:
    """Name an operator that rules do not have, and what to write instead."""
    return f"unknown operator {shorten(name)}{suggestions.operator_hint(name)}"


def unknown_reference(name: str, evaluators: Mapping[str, Json], suggestions: Suggestions) -> str:
    """Name a shared rule that is not there, and the one that may be meant."""
    near = suggestions.did_you_mean(name, evaluators)
    return f"$ref names {shorten(name)}, which is not in $evaluators{near}"


def unknown_variable(name: str) -> str:
    """Name a variable that flagd does not set, and the one that is meant."""
    near = similar_word(name, _VARIABLE_WORDS)
    hint = f' (did you mean "{near}"?)' if near is not None else ""
    return f"flagd sets only $flagd.timestamp and $flagd.flagKey, not {shorten(name)}{hint}"


def unknown_comparison(name: Json) -> str:
    """Name what versions cannot be compared by, and what to write instead."""
    known = " ".join(COMPARISONS)
    return f"sem_ver compares by one of {known}, not {shorten(name)}{comparison_hint(name)}"


def unknown_state(state: str) -> str:
    """Name what is no state of a flag, and the state that is meant."""
    meant = _STATE_HABITS.get(state.casefold()) or similar_word(state, _STATE_WORDS)
    near = f" (did you mean {quote(meant)}?)" if meant is not None else ""
    return (
        f"{quote(state)} is not a valid state{near} and flagd would treat the flag as enabled; "
        'write "ENABLED" or "DISABLED"'
    )


def unknown_field(name: str, near: str) -> str:
    """Name a field that flagd does not know; `near`: the suggestion."""
    return f"unknown field {quote(name)}{near}; it is ignored, as by flagd"
