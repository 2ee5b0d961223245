"""`var`, `missing`, `missing_some`: reading the evaluation context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evaluator.targeting.frame import (
    CompileScope,
    Element,
    Evaluate,
    Frame,
    data_of,
    fail_with,
    is_static,
    refuse_rule,
)
from evaluator.targeting.values import RuleError, is_number, number, text, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.model import Json

FLAGD: Final = "$flagd"


def walk(value: Json, parts: tuple[str, ...], default: Json = None) -> Json:
    """Follow `parts` from `value`; `default` if a part is missing or null. Text may index a list."""
    for part in parts:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list):
            index = whole(number(part))
            value = value[index] if 0 <= index < len(value) else None
        else:
            return default
        if value is None:
            return default
    return value


def look_up(name: Json, data: Json) -> Json:
    """Return the value of `var` in `data`; `name` is its evaluated argument."""
    default = None
    if name is None:
        return None if isinstance(data, dict | list) else data
    if isinstance(name, list):
        if not name:
            return data
        default = name[1] if len(name) == 2 else None
        name = name[0]
        if not isinstance(name, str):
            raise RuleError("the name of a variable must be text")
    elif name == "":
        return data
    elif is_number(name):
        name = text(name)
    if data is None:
        return default
    if not isinstance(name, str):
        raise RuleError("the name of a variable must be text")
    return walk(data, split(name), default)


def split(name: str) -> tuple[str, ...]:
    """Return the parts of a dotted name, without empty ones."""
    return tuple(part for part in name.split(".") if part)


def top_level_name(values: Json, scope: CompileScope) -> str | None:
    """Return the name if `var` with these arguments reads just one key of the evaluation context."""
    name = values[0] if isinstance(values, list) and len(values) == 1 else values
    if isinstance(name, str) and split(name) == (name,) and name != FLAGD and not scope.in_body:
        return name
    return None


def variable(
    values: Json, scope: CompileScope, *, subject: bool = False, condition: bool = False
) -> Evaluate:
    """Compile `var`. subject: it is the list of a loop, whose elements are not evaluated; a substituted value
    counts as no list. condition: it is the whole body of `all`, `none`, `some` or `reduce`, which must still
    be a rule after substitution.
    """
    if scope.substituted:
        return _compile_substituted(values, scope, subject=subject, condition=condition)
    key = top_level_name(values, scope)
    if key is not None:
        return _top_level(key, scope)
    path, shown = scope.path, _shown_value(values)
    if is_static(values):
        read = _reader(values, scope)

        def get(data: Json, frame: Frame) -> Json:
            value = read(data)
            return value if frame.trace is None else frame.report(path, value, name=shown)

        return get
    name_of = scope.child(values)

    def get_computed(data: Json, frame: Frame) -> Json:
        name = name_of(data, frame)
        frame.charge_name(name[0] if isinstance(name, list) and name else name)
        value = look_up(name, data)
        return value if frame.trace is None else frame.report(path, value, name=shown)

    return get_computed


def _top_level(key: str, scope: CompileScope) -> Evaluate:
    path = scope.path

    def get(context: Json, frame: Frame) -> Json:
        value = context.get(key)
        return value if frame.trace is None else frame.report(path, value, name=key)

    return get


def _reader(values: Json, scope: CompileScope) -> Callable[[Json], Json]:
    """Compile a literal name, with or without default; names of the evaluation context are split once."""
    name = values[0] if isinstance(values, list) and values else values
    parts = split(name) if isinstance(name, str) else ()
    if not parts or scope.in_body:
        return lambda data: look_up(values, data)
    if parts == (FLAGD, "flagKey"):
        flag_key = scope.options.flag_key
        return lambda _: flag_key
    default = values[1] if isinstance(values, list) and len(values) == 2 else None
    first, rest = parts[0], parts[1:]

    def read(context: Json) -> Json:
        value = context.get(first)
        return default if value is None else walk(value, rest, default)

    return read


def _compile_substituted(values: Json, scope: CompileScope, *, subject: bool, condition: bool) -> Evaluate:
    """Compile `var` in a substituted body: solvers first, then the element. Names are never substituted."""
    kept = isinstance(values, str) and (not values or values.startswith("."))
    name_of = scope.body(values, substituted=False)
    path, shown = scope.path, _shown_value(values)

    def get(element: Element, frame: Frame) -> Json:
        for solver in () if kept else element.solvers:
            value = look_up(name_of(solver, frame), solver)
            if value is not None:
                if condition and not isinstance(value, dict):
                    raise RuleError("a condition in a loop must be a rule, not a variable")
                refuse_rule(value, None if subject else frame)
                if subject and not isinstance(value, list | dict):
                    value = None
                break
        else:
            value = look_up(name_of(element.data, frame), element.data)
        return value if frame.trace is None else frame.report(path, value, name=shown)

    return get


def _shown_value(values: Json) -> Json:
    return values[0] if isinstance(values, list) and values else values


def compile_missing(values: Json, scope: CompileScope) -> Evaluate:
    """Compile `missing`: the result is the names that the context lacks."""
    names_of, path = scope.child(values), scope.path

    def find_missing(argument: Json, frame: Frame) -> Json:
        names = names_of(argument, frame)
        names = [names] if isinstance(names, str) else names
        if not isinstance(names, list):
            raise RuleError("missing needs names")
        absent = _absent(names, data_of(argument), frame)
        return absent if frame.trace is None else frame.report(path, absent)

    return find_missing


def compile_missing_some(values: Json, scope: CompileScope) -> Evaluate:
    """Compile `missing_some`: the result is the missing names, or none if enough are present."""
    if not isinstance(values, list | dict):
        return fail_with("missing_some needs a number and names")
    arguments_of, path = scope.child(values), scope.path

    def find_missing(argument: Json, frame: Frame) -> Json:
        arguments = arguments_of(argument, frame)
        if not isinstance(arguments, list) or len(arguments) < 2:
            raise RuleError("missing_some needs a number and names")
        enough, names = whole(number(arguments[0])), arguments[1]
        if not isinstance(names, list):
            raise RuleError("missing_some needs names")
        absent = _absent(names, data_of(argument), frame)
        absent = absent if enough > len(names) - len(absent) else []
        return absent if frame.trace is None else frame.report(path, absent)

    return find_missing


def _absent(names: list[Json], data: Json, frame: Frame) -> list[Json]:
    absent = []
    for name in names:
        frame.charge_name(name)
        if look_up(name, data) is None:
            absent.append(name)
    return absent
