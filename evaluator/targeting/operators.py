"""Operators on evaluated arguments: text, lists, `set`, text and version tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from evaluator.flags.known_operators import is_scalars
from evaluator.flags.versions import sem_ver
from evaluator.targeting import values as arithmetic
from evaluator.targeting.frame import CompileScope, Evaluate, Frame, refuse_rule
from evaluator.targeting.values import (
    WHITE_SPACE,
    RuleError,
    first,
    is_number,
    kind,
    number,
    real,
    require_list,
    text,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.model import Json

MOST_TEXT: Final = 1 << 20
"""Most characters of an operator's result."""

_TOO_LONG: Final = "cat makes too long a text"


def _cat(values: Json) -> Json:
    if isinstance(values, str):
        return values
    parts = [text(value) for value in require_list(values)]
    if sum(map(len, parts)) > MOST_TEXT:
        raise RuleError(_TOO_LONG)
    return parts[0] if len(parts) == 1 else "".join(parts).strip(WHITE_SPACE)


def _substr(values: Json) -> Json:
    arguments = first(values, 2)
    source = text(arguments[0])
    start, length = whole(number(arguments[1])), len(source)
    if start < 0:
        start += length
    if start < 0 or start > length:
        return source
    if len(arguments) == 3:
        length = whole(number(arguments[2]))
    end = min(len(source) + length if length < 0 else start + length, len(source))
    if end < start:
        raise RuleError("substr ends before it starts")
    return source[start:end]


def _merge(values: Json) -> Json:
    if not isinstance(values, list | dict):
        if values is None:
            raise RuleError("merge needs lists")
        return [values]
    merged: list[Json] = []
    for value in require_list(values):
        if isinstance(value, list):
            merged.extend(value)
        else:
            merged.append(value)
    return merged


def _in(values: Json) -> Json:
    arguments = first(values, 1)
    needle, haystack = arguments[0], arguments[1] if len(arguments) > 1 else None
    if isinstance(haystack, str):
        if not isinstance(needle, str):
            raise RuleError(f"only text can be in a text, not {kind(needle)}")
        return needle in haystack
    return isinstance(haystack, list) and any(_is_element(needle, item) for item in haystack)


def _is_element(needle: Json, element: Json) -> bool:
    """Compare with an element; an element that is a list is a range from its first to its second value."""
    if isinstance(element, list):
        if len(element) < 2:
            raise RuleError("a range needs two bounds")
        value = number(needle)
        return value >= number(element[0]) and number(element[1]) >= value
    if is_number(needle):
        return number(element) == real(needle)
    return _same(needle, element)


def _same(left: Json, right: Json) -> bool:
    if isinstance(left, list | dict) and type(left) is type(right):
        raise RuleError(f"cannot compare {kind(left)} with another")
    return kind(left) == kind(right) and bool(left == right)


def _make_contains(holds: Callable[[list[bool]], bool], *, otherwise: bool) -> Callable[[Json], Json]:
    """Make `contains_all`, `contains_any` or `contains_none`; anything but two lists gives `otherwise`."""

    def contains(values: Json) -> bool:
        if not isinstance(values, list) or len(values) != 2:
            return otherwise
        present, wanted = values
        if not isinstance(present, list) or not isinstance(wanted, list):
            return otherwise
        known = {_token(value) for value in present if not isinstance(value, list | dict)}
        shapes = {type(value) for value in present}
        matches = []
        for value in wanted:
            if isinstance(value, list | dict) and type(value) in shapes:
                raise RuleError(f"cannot compare {kind(value)} with another")
            matches.append(not isinstance(value, list | dict) and _token(value) in known)
        return holds(matches)

    return contains


def _token(value: Json) -> tuple[str, Json]:
    return kind(value), real(value) if is_number(value) else value


def _set(values: Json) -> Json:
    arguments = require_list(values)
    if len(arguments) < 3:
        return arguments[0] if arguments else None
    target, name, value = arguments[:3]
    if not isinstance(target, dict):
        return target
    if not isinstance(name, str):
        raise RuleError("the name of a property must be text")
    return {**target, name: value}


def _compile_set(values: Json, scope: CompileScope) -> Evaluate:
    """Compile `set`, which runs its third argument as a rule once more."""
    arguments_of, path = scope.child(values), scope.path

    def evaluate(data: Json, frame: Frame) -> Json:
        arguments = arguments_of(data, frame)
        _charge(frame, arguments)
        if isinstance(arguments, list) and len(arguments) > 2 and isinstance(arguments[0], dict):
            frame.charge_reading(list(arguments[0]))
            refuse_rule(arguments[2], frame)
        result = _set(arguments)
        return result if frame.trace is None else frame.report(path, result)

    return evaluate


def _beside(holds: Callable[[str, str], bool]) -> Callable[[Json], Json]:
    def compare(values: Json) -> bool | None:
        if not isinstance(values, list) or len(values) != 2:
            return None
        left, right = values
        return holds(left, right) if isinstance(left, str) and isinstance(right, str) else None

    return compare


def _eager(
    operate: Callable[[Json], Json], *, grows: bool = False, scans: bool = True
) -> Callable[[Json, CompileScope], Evaluate]:
    """Make a compiler for an operator on evaluated arguments. grows: its result may be longer than its
    arguments, and is charged, too. scans: it reads its arguments to the end.
    """

    def compile_eager(values: Json, scope: CompileScope) -> Evaluate:
        arguments_of, path = scope.child(values), scope.path
        charges = scans or scope.in_body

        def evaluate(data: Json, frame: Frame) -> Json:
            arguments = arguments_of(data, frame)
            if charges:
                _charge(frame, arguments)
            result = operate(arguments)
            if grows:
                frame.charge_reading(result)
            return result if frame.trace is None else frame.report(path, result)

        return evaluate

    return compile_eager


def _charge(frame: Frame, arguments: Json) -> None:
    frame.charge_reading(arguments)
    if isinstance(arguments, list):
        for argument in arguments[:3]:
            frame.charge_reading(argument)


def _compile_cat(values: Json, scope: CompileScope) -> Evaluate:
    """Compile `cat`: texts are joined directly; other values are converted first."""
    if not isinstance(values, list) or len(values) < 2 or scope.in_body:
        return _eager(_cat, grows=True)(values, scope)
    parts, path = tuple(scope.child(node, index) for index, node in enumerate(values)), scope.path

    def join(data: Json, frame: Frame) -> Json:
        texts = [part(data, frame) for part in parts]
        try:
            joined = "".join(texts)
        except TypeError:
            joined = _cat(texts)
        if len(joined) > MOST_TEXT:
            raise RuleError(_TOO_LONG)
        frame.charge_reading(joined)
        # Python's strip is faster and removes more: a text that it leaves unchanged needs no other.
        result = joined if joined.strip() is joined else joined.strip(WHITE_SPACE)
        return result if frame.trace is None else frame.report(path, result)

    return join


class Members:
    """What `in` finds in one constant list of scalars, as `_in` compares each of them, in one look-up."""

    __slots__ = ("__weakref__", "_error", "_numbers", "_others", "_texts", "literal")

    def __init__(self, literal: list[Json]) -> None:
        self.literal = literal
        self._texts = frozenset(item for item in literal if item.__class__ is str)
        self._others = frozenset(item for item in literal if item is None or item.__class__ is bool)
        """Null and booleans, which equal themselves alone; in a set with numbers, true would be 1."""
        numbers: set[float] = set()
        self._error: str | None = None
        try:
            numbers.update(map(number, literal))
        except RuleError as error:
            # Whoever asks for a number that stands before it gets true, as where items are read in order.
            self._error = str(error)
        self._numbers = frozenset(numbers)

    def hold(self, needle: Json) -> bool:
        """Return whether the needle, any value, is in the list. Raises RuleError as `_in` does."""
        if needle.__class__ is str:
            return needle in self._texts
        if is_number(needle):
            # Of an empty list, no number is looked at, however large it is.
            if self._numbers and real(needle) in self._numbers:
                return True
            if self._error is not None:
                raise RuleError(self._error)
            return False
        return (needle is None or needle.__class__ is bool) and needle in self._others


_LONG: Final = 64
"""Items from which on a list's members are shared by all rules that it is in."""
SHARED_MEMBERS: Final[WeakValueDictionary[int, Members]] = WeakValueDictionary()
"""Members by the identity of their list, which they keep alive: a shared rule is compiled into each flag that
refers to it, and all of these look its list up in one place.
"""


def _members_of(literal: Json) -> Members | None:
    """Return the members of a constant list of scalars; None for anything else."""
    members = SHARED_MEMBERS.get(id(literal))
    if members is not None:
        return members
    if not is_scalars(literal):
        return None
    members = Members(literal)
    if len(literal) >= _LONG:
        SHARED_MEMBERS[id(literal)] = members
    return members


def _compile_in(values: Json, scope: CompileScope) -> Evaluate:
    """Compile `in`: of a constant list of scalars, members are looked up."""
    members = _members_of(values[1]) if isinstance(values, list) and len(values) == 2 else None
    if members is None:
        return _eager(_in)(values, scope)
    hold = members.hold
    needle_of, path = scope.child(values[0], 0), scope.path

    def is_member(data: Json, frame: Frame) -> Json:
        member = hold(needle_of(data, frame))
        return member if frame.trace is None else frame.report(path, member)

    return is_member


EAGER: dict[str, Callable[[Json, CompileScope], Evaluate]] = {
    "max": _eager(arithmetic.extreme(max)),
    "min": _eager(arithmetic.extreme(min)),
    "+": _eager(arithmetic.total),
    "-": _eager(arithmetic.minus),
    "*": _eager(arithmetic.product),
    "/": _eager(arithmetic.quotient),
    "%": _eager(arithmetic.remainder, scans=False),
    "abs": _eager(arithmetic.absolute, scans=False),
    "cat": _compile_cat,
    "substr": _eager(_substr),
    "merge": _eager(_merge, grows=True),
    "in": _compile_in,
    "contains_all": _eager(_make_contains(all, otherwise=False)),
    "contains_any": _eager(_make_contains(any, otherwise=False)),
    "contains_none": _eager(_make_contains(lambda matches: not any(matches), otherwise=True)),
    "set": _compile_set,
    "starts_with": _eager(_beside(str.startswith), scans=False),
    "ends_with": _eager(_beside(str.endswith), scans=False),
    "sem_ver": _eager(sem_ver, scans=False),
}
