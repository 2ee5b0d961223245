"""Suggests the name that was meant: by a table of habits from other languages, then by spelling. Pure.

A suggestion never means something else than what was written: `=>` is `>=`, and `nor` is no misspelt `or`.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from evaluator.flags.known_operators import OPERATORS, REFERENCE, shorten
from evaluator.flags.model import Json, State
from evaluator.flags.problems import Severity
from evaluator.flags.text import quote, visible
from evaluator.flags.versions import COMPARISONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_LONGEST_NAME: Final = 60
_CANDIDATES: Final = 30
MOST_SEARCHES: Final = 30
"""Most searches for one document. More mistakes than these are rarely of as many kinds."""

_SAME: Final[Mapping[str, str]] = MappingProxyType({
    name: operator
    for operator, names in {
        "==": "= eq eql equal equals equalto isequal is same",
        "!=": "<> >< ≠ =! ne neq noteq notequal notequals notequalto isnot",
        "===": "====",
        "!==": "=!= !===",
        ">": "gt greater greaterthan morethan",
        ">=": "=> ≥ >== ge gte geq greaterthanorequal greaterorequal greaterthanequal atleast",
        "<": "lt less lessthan smaller smallerthan",
        "<=": "=< ≤ <== le lte leq lessthanorequal lessorequal lessthanequal atmost",
        "and": "&& & allof conjunction",
        "or": "|| | disjunction",
        "!": "not ¬",
        "!!": "bool boolean tobool truthy",
        "if": "ifelse ifthen ifthenelse ite ternary",
        "cat": "concat concatenate strcat",
        "in": "oneof isoneof isin inlist inarray elementof memberof",
        "all": "every",
        "reduce": "fold foldl accumulate",
        "merge": "concatlists flatten",
        "+": "add plus sum",
        "-": "subtract minus",
        "*": "mul times multiply product",
        "/": "div divide ÷",
        "%": "mod modulo rem remainder",
        "max": "maximum",
        "min": "minimum",
        "var": "vars variable attribute attr property prop field get",
        "starts_with": "startwith beginswith beginwith hasprefix sw",
        "ends_with": "endwith hassuffix ew",
        "sem_ver": "semanticversion",
        REFERENCE: "ref refs reference",
    }.items()
    for name in names.split()
})  # fmt: skip
"""Names of other languages and rule engines for the very same operator, folded."""

_NO_FOLDING: Final = "rules cannot ignore case: send the text in lower case, and compare with that"
_NO_PATTERNS: Final = (
    'there are no regular expressions: use "starts_with" or "ends_with", or "in" for a part of a text'
)
_CONTAINS: Final = 'write {"in": [PART, WHOLE]}: the part stands first'
_NOT_IN: Final = 'write {"!": {"in": [VALUE, LIST]}}'
_NO_TIME: Final = (
    'compare {"var": "$flagd.timestamp"}, in seconds since 1970, by "<" and ">"; there are no dates'
)
_IS_NULL: Final = 'compare with null: {"==": [{"var": "NAME"}, null]}, or by "!=" whether it is there'
_COUNT: Final = "there is no length of a list or a text: send it as a value of the context"
_SEGMENT: Final = 'write the rule as an entry of `$evaluators`, and {"$ref": "NAME"} here'
_BRANCHES: Final = 'one "if" takes all: [CONDITION, RESULT, CONDITION, RESULT, …, RESULT ELSE]'
_SHARES: Final = 'shares are given by "fractional": [["on", 20], ["off", 80]]'

_ELSEWISE: Final[Mapping[str, str]] = MappingProxyType({
    name: sentence
    for names, sentence in {
        "match matches like ilike rlike glob =~ ~= ~ !~": _NO_PATTERNS,
        "contains contain includes include has haselement co": _CONTAINS,
        "notin !in nin isnotoneof notoneof noneof": _NOT_IN,
        "any anyof": '"some" is for elements of a list, "or" for conditions, "in" for a list of values',
        "missingnone": 'write {"!": {"missing": ["NAME"]}}',
        "nor": 'write {"!": {"or": […]}}',
        "nand": 'write {"!": {"and": […]}}',
        "xor": 'of two booleans, write {"!=": [{"!!": A}, {"!!": B}]}',
        "between range inrange": 'write {"<=": [LOW, {"var": "NAME"}, HIGH]}',
        "fractionalevaluation": 'it is "fractional" now; users are divided anew, unless the value stays '
        '{"cat": [{"var": "$flagd.flagKey"}, {"var": "NAME"}]}',
        "percent percentage percentrollout rollout split weighted distribution bucket": _SHARES,
        "len length size count": _COUNT,
        "lower lowercase tolower tolowercase upper uppercase toupper touppercase casefold": _NO_FOLDING,
        "ieq iequals icontains icontain istartswith iendswith": _NO_FOLDING,
        "now today date datetime time timestamp before after day hour month year dayofweek": _NO_TIME,
        "null isnull isnil isnone isempty empty exists exist defined isdefined isset present pr": _IS_NULL,
        "segment insegment matchsegment targetmatch": _SEGMENT,
        "then else elif elseif otherwise default switch case when cond": _BRANCHES,
        "pow power ** ^ sqrt exp round floor ceil ceiling avg average mean": "rules have + - * / % only",
        "trim replace join split2 reverse sort unique distinct": "send the value as the rule needs it",
        "ip cidr incidr ipmatch iprange subnet": "rules know no addresses: send the network's name",
        "substring slice": 'write {"substr": [TEXT, START, LENGTH]}',
        "return value literal const": "write the variant's name itself",
        "random rand": 'there is no chance: "fractional" gives a user the same variant each time',
    }.items()
    for name in names.split()
})  # fmt: skip
"""Operators that rules do not have, folded: what to write instead."""

_STEMS: Final[Mapping[str, str]] = MappingProxyType({
    "regex": _NO_PATTERNS,
    "ignorecase": _NO_FOLDING,
    "insensitive": _NO_FOLDING,
    "semver": 'versions are compared by {"sem_ver": [{"var": "NAME"}, ">=", "1.2.0"]}',
    "version": 'versions are compared by {"sem_ver": [{"var": "NAME"}, ">=", "1.2.0"]}',
})  # fmt: skip
"""The same by a part of the folded name."""

_OF_VERSIONS: Final[Mapping[str, str]] = MappingProxyType({"==": "=", "===": "=", "!==": "!=", "~>": "~"})

_OWN: Final = ("_", "x-", "X-", "#", "//", "$comment")
"""How names begin that people add on purpose: comments, anchors, what is switched off."""
_OWN_WORDS: Final = frozenset({"stage", "stats", "estate", "flagd"})
"""Words of their own that are one letter from a field."""
_TYPES: Final = ("string", "str", "numeric", "number", "num")
"""Prefixes of operators where each type has its own: here one is for all."""
_NEGATIONS: Final = ("!", "isnot", "doesnot", "not")
_REPEATED: Final = re.compile(r"(.)\1+")
_PUNCTUATION: Final = str.maketrans("", "", " _-.$")


class Words:
    """A few words that never change, and how each is compared."""

    def __init__(self, words: Iterable[str]) -> None:
        self.compared = tuple(map(_comparison_parts, words))
        """See `_comparison_parts`."""


class Suggestions:
    """Searches among names of any number, so that one document is worth only so many of them."""

    def __init__(self, most: int = MOST_SEARCHES) -> None:
        self._left = most

    def did_you_mean(self, name: str, known: Iterable[str]) -> str:
        """See `did_you_mean`; "" once nothing is left."""
        return did_you_mean(name, known) if self.take() else ""

    def similar_word(self, name: str, known: Iterable[str]) -> str | None:
        """See `similar_word`; None once nothing is left."""
        return similar_word(name, known) if self.take() else None

    def operator_hint(self, name: str) -> str:
        """Return what to write instead of an unknown operator, to be added to a message; "" if unknown."""
        if len(name) > _LONGEST_NAME:
            return ""
        return _hint(name) or (_spelling_hint(name, _fold(name)) if self.take() else "")

    def take(self) -> bool:
        """Return whether one more search may be made, and count it."""
        self._left -= 1
        return self._left >= 0


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean "x"?)`, or "" if nothing is near; its cost is bounded whatever the names."""
    if len(name) > _LONGEST_NAME:
        return ""
    near = (other for other in known if abs(len(other) - len(name)) <= 2)
    closest = get_close_matches(name, list(islice(near, _CANDIDATES)), n=1, cutoff=0.6)
    return _question(closest[0]) if closest else ""


def similar_word(name: str, known: Iterable[str] | Words) -> str | None:
    """Return the one word that `name` misspells: one letter off, two where it has many, none where few."""
    if len(name) > _LONGEST_NAME:
        return None
    written = _fold(name)
    length, letters = len(written), frozenset(written)
    compared = known.compared if isinstance(known, Words) else map(_comparison_parts, known)
    least, nearest = _LONGEST_NAME, list[str]()
    for word, folded, bound, needed in compared:
        if abs(len(folded) - length) <= bound >= len(needed - letters):
            steps = _distance(written, folded, bound)
            if steps <= bound and steps <= least:
                nearest = [*nearest, word] if steps == least else [word]
                least = steps
    return nearest[0] if len(nearest) == 1 else None


def _comparison_parts(word: str) -> tuple[str, str, int, frozenset[str]]:
    """Return (the word, the word folded, the most letters that may differ, its letters)."""
    folded = _fold(word)
    return word, folded, 0 if len(folded) < 4 else 1 if len(folded) < 8 else 2, frozenset(folded)


def unknown_name(name: str, known: Words) -> tuple[Severity, str]:
    """Return how bad a field or key is that flagd does not know, and a suggestion for its message: a warning
    where it misspells one of `known`, whose part flagd then misses; else a note.
    """
    if name.startswith(_OWN) or name.casefold() in _OWN_WORDS:
        return Severity.NOTE, ""
    near = similar_word(name, known)
    return (Severity.NOTE, "") if near is None else (Severity.WARNING, _question(near))


def _hint(name: str) -> str:
    folded = _fold(name)
    if hint := _habit_hint(folded):
        return hint
    for prefix in _TYPES:
        if hint := _habit_hint(folded.removeprefix(prefix)):
            return hint
    for prefix in _NEGATIONS:
        rest = folded.removeprefix(prefix)
        if rest == folded:
            continue
        if (operator := _operator(rest)) is not None:
            return f'; write {{"!": {{"{operator}": […]}}}}'
        if hint := _habit_hint(rest):
            return f'{hint}; negate it: {{"!": […]}}'
    return ""


def _spelling_hint(name: str, folded: str) -> str:
    plain = _REPEATED.sub(r"\1", folded)
    for word in _OPERATOR_WORDS:
        if sorted(word) == sorted(folded) or _REPEATED.sub(r"\1", word) == plain:
            return _question(word)
    near = similar_word(name, _LONG_OPERATORS) if len(folded) > 3 else None
    return "" if near is None else _question(near)


def _habit_hint(folded: str) -> str:
    if (operator := _operator(folded)) is not None:
        return _question(operator)
    sentence = _ELSEWISE.get(folded) or next((_STEMS[stem] for stem in _STEMS if stem in folded), "")
    return f"; {sentence}" if sentence else ""


def comparison_hint(name: object) -> str:
    """Return what to write instead of an unknown comparison of versions; "" if unknown."""
    if not isinstance(name, str):
        return ""
    operator = _operator(name.strip()) or name
    operator = _OF_VERSIONS.get(operator, operator)
    return _question(operator) if operator in COMPARISONS else ""


def _operator(name: str) -> str | None:
    """Return the operator that has this name in other languages, or with other letters of case."""
    folded = _fold(name)
    return _OPERATORS_BY_FOLD.get(folded) or _SAME.get(folded)


def _fold(name: str) -> str:
    folded = name.casefold().strip()
    # Where all is punctuation, each character counts: `->` is no `>`.
    return folded.translate(_PUNCTUATION) if any(map(str.isalnum, folded)) else folded


def _question(word: str) -> str:
    return f' (did you mean "{visible(word)}"?)'


def _distance(one: str, other: str, most: int) -> int:
    """Count letters to add, drop, replace or swap with the next to turn one word into the other; some number
    above `most`, which is small, if there are more.
    """
    first, last, other_last = 0, len(one), len(other)
    while first < last and first < other_last and one[first] == other[first]:
        first += 1
    while first < last and first < other_last and one[last - 1] == other[other_last - 1]:
        last, other_last = last - 1, other_last - 1
    left, other_left = last - first, other_last - first
    if not left or not other_left or abs(left - other_left) > most or not most:
        return left or other_left
    one, other = one[first:last], other[first:other_last]
    steps = [
        _distance(one[1:], other, most - 1),
        _distance(one, other[1:], most - 1),
        _distance(one[1:], other[1:], most - 1),
    ]
    if one[:2] == other[1::-1]:
        steps.append(_distance(one[2:], other[2:], most - 1))
    return 1 + min(steps)


_OPERATORS_BY_FOLD: Final = {_fold(word): word for word in (*OPERATORS, REFERENCE)}
_OPERATOR_WORDS: Final = tuple(word for word in OPERATORS if word.isidentifier())
_LONG_OPERATORS: Final = Words(word for word in _OPERATOR_WORDS if len(word) > 3)
"""A shorter word is one letter from words that mean something else."""


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
