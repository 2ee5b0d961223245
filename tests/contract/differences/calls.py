"""What the core was asked within one evaluation, and what can be said of it: the words of the rows."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXACT = 2**53
LOOPS = frozenset({"filter", "map", "reduce", "all", "some", "none"})
_PLAIN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,2})?", re.ASCII)


@dataclass(frozen=True)
class Call:
    """One operator that was evaluated; `flag` stands for the flag around the rule."""

    name: str
    raw: Any
    """Its arguments as written; of `flag`, the flag's definition."""
    parts: list[Any]
    """What was evaluated for it, in order; of `flag`, what the rule came to."""
    scope: Any = None
    """What its variables are read from; of `flag`, the type that was asked for."""
    result: Any = None
    generation: str = ""


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_container(value: Any) -> bool:
    return isinstance(value, list | dict)


def reads_alike(text: str) -> bool:
    """Whether Go, JavaScript and Python read the same number, or all of them none, from `text`."""
    if _PLAIN.fullmatch(text):
        return True
    try:
        float(text)
    except ValueError:
        return bool(text.strip()) and "x" not in text.lower()
    return False


def pairs(call: Call) -> list[tuple[Any, Any]]:
    """Both ways round, what a comparison compares."""
    found = list(zip(call.parts[:3], call.parts[1:3], strict=False))
    return found + [(right, left) for left, right in found]


def beside(left: Callable[[Any], bool], right: Callable[[Any], bool]) -> Callable[[Call], bool]:
    return lambda call: any(left(one) and right(other) for one, other in pairs(call))


def any_part(holds: Callable[[Any], bool]) -> Callable[[Call], bool]:
    return lambda call: any(holds(part) for part in call.parts)


def fewer_than(count: int) -> Callable[[Call], bool]:
    return lambda call: len(call.parts) < count


def is_null(value: Any) -> bool:
    return value is None


def is_zero(value: Any) -> bool:
    return isinstance(value, int | float) and not value


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_number_or_boolean(value: Any) -> bool:
    return isinstance(value, int | float)


def is_odd_text(value: Any) -> bool:
    return isinstance(value, str) and not reads_alike(value)


def is_short_list(value: Any) -> bool:
    return isinstance(value, list) and len(value) < 2


def is_empty_object(value: Any) -> bool:
    return value == {} and isinstance(value, dict)


def is_inexact(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) > EXACT


def first_two(call: Call) -> tuple[Any, Any]:
    """Its first two operands, null for those that are not there."""
    padded: list[Any] = [*call.parts, None, None]
    return padded[0], padded[1]


def equal_containers(call: Call) -> bool:
    left, right = first_two(call)
    return is_container(left) and type(left) is type(right) and left == right


def equal_boolean_and_number(call: Call) -> bool:
    left, right = first_two(call)
    return is_number_or_boolean(left) and left == right and type(left) is not type(right)


def variables(rule: Any) -> Iterator[str]:
    """Names that a rule reads, wherever."""
    for name, raw in operators(rule):
        if name == "var":
            given = raw[0] if isinstance(raw, list) and raw else raw
            yield given if isinstance(given, str) else "?"


def operators(rule: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(rule, dict):
        yield from rule.items() if len(rule) == 1 else ()
        for value in rule.values():
            yield from operators(value)
    elif isinstance(rule, list):
        for value in rule:
            yield from operators(value)


def first_of(name: str) -> str:
    return name.split(".", 1)[0]


def outer_value_is_read(call: Call) -> bool:
    outer = call.scope if isinstance(call.scope, dict) else {}
    body = call.raw[1:2] if isinstance(call.raw, list) else []
    return any(name and outer.get(first_of(name)) is not None for name in variables(body))


def element_object_is_read(call: Call) -> bool:
    """An `all` whose condition finds a list or an object in the element: the engine would run it."""
    body = call.raw[1:2] if isinstance(call.raw, list) else []
    names = {first_of(name) for name in variables(body) if name}
    elements = call.parts[0] if call.parts and isinstance(call.parts[0], list) else []
    known = [e.get(name) for e in elements if isinstance(e, dict) for name in names]
    return any(is_container(value) for value in known)


def loop_within(call: Call) -> bool:
    body = call.raw[1:2] if isinstance(call.raw, list) else []
    return any(name in LOOPS for name, _ in operators(body))


def rules_in_literal(call: Call) -> bool:
    first = call.raw[0] if isinstance(call.raw, list) and call.raw else None
    return isinstance(first, list) and any(True for _ in operators(first))


def loop_over_no_list(call: Call) -> bool:
    computed = isinstance(call.raw, list) and isinstance([*call.raw, None][0], dict)
    subject = call.parts[0] if call.parts else None
    eager = call.name in {"filter", "map", "reduce"}
    return computed and not isinstance(subject, list) and subject is not None and (eager or bool(subject))


def goes_into_text_or_list(call: Call) -> bool:
    if not call.parts or not isinstance(call.parts[0], str):
        return False
    value = call.scope
    for part in call.parts[0].split("."):
        if isinstance(value, str):
            return part == "length" or part.isdigit()
        if isinstance(value, list):
            if not part.isdigit() or str(int(part)) != part:
                return True
            value = value[int(part)] if int(part) < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return False


def odd_name(call: Call) -> bool:
    if not call.parts:
        return False
    name = call.parts[0]
    bare_index = not isinstance(call.raw, list) and is_number(name) and isinstance(call.scope, list)
    return not isinstance(name, str) and not (bare_index and isinstance(name, int) and name >= 0)


def has_empty_part(call: Call) -> bool:
    name = call.parts[0] if call.parts else None
    return isinstance(name, str) and bool(name) and "" in name.split(".")


def look_up(name: Any, scope: Any) -> Any:
    for part in name.split(".") if isinstance(name, str) else ():
        scope = scope.get(part) if isinstance(scope, dict) else None
    return scope


def names_of(call: Call) -> list[Any]:
    given = call.parts[-1:] if call.name == "missing_some" else call.parts
    return given[0] if given and isinstance(given[0], list) else given


def blank_is_missed(call: Call) -> bool:
    return any(look_up(name, call.scope) == "" for name in names_of(call))


def odd_names(call: Call) -> bool:
    names = names_of(call)
    nested = call.name == "missing" and not bare(call) and any(map(is_container, call.parts))
    return (
        nested
        or not all(isinstance(name, str) and name for name in names)
        or any(goes_into_text_or_list(Call("var", name, [name], call.scope)) for name in names)
    )


def odd_count(call: Call) -> bool:
    return len(call.parts) < 2 or not (is_number(call.parts[0]) and call.parts[0] % 1 == 0)


def needle_and_list(holds: Callable[[Any, list[Any]], bool]) -> Callable[[Call], bool]:
    def applies(call: Call) -> bool:
        needle, haystack = first_two(call)
        return isinstance(haystack, list) and holds(needle, haystack)

    return applies


def spelled_apart(value: Any) -> bool:
    """A number that Python's `%.15g` does not write as the shortest digits without an exponent."""
    if not is_number(value):
        return False
    if not math.isfinite(value) or is_inexact(value):
        return True
    shortest = format(Decimal(repr(value)), "f").removesuffix(".0")
    return shortest != (f"{value:.15g}" if isinstance(value, float) else str(value))


def cat_is_trimmed(call: Call) -> bool:
    joined = "".join(str(part) for part in call.parts)
    return len(call.parts) > 1 and joined.strip() != joined


def substr_leaves_text(call: Call) -> bool:
    source, start, *length = call.parts[:3] if len(call.parts) > 1 else ("", 0)
    if not isinstance(source, str) or not is_number(start):
        return False
    begin = int(start) if start >= 0 else len(source) + int(start)
    if not 0 <= begin <= len(source):
        return True
    cut = length[0] if length and is_number(length[0]) else 0
    return cut < 0 and len(source) + int(cut) < begin


def substr_operands(call: Call) -> bool:
    source, *numbers = call.parts or [None]
    odd = [n for n in numbers[:2] if not is_number(n) and not (is_text(n) and _PLAIN.fullmatch(n))]
    return not isinstance(source, str) or bool(odd)


def divides_by_zero(call: Call) -> bool:
    return any(is_zero(part) or (is_text(part) and is_zero_text(part)) for part in call.parts[1:])


def is_zero_text(text: str) -> bool:
    return bool(_PLAIN.fullmatch(text)) and float(text) == 0


def signs_differ(call: Call) -> bool:
    signs = {math.copysign(1, float(part)) for part in call.parts[:2] if number_in(part)}
    return len(signs) > 1


def number_in(part: Any) -> bool:
    return is_number(part) or (isinstance(part, str) and bool(_PLAIN.fullmatch(part)))


def bare(call: Call) -> bool:
    return not isinstance(call.raw, list)


def kind(value: Any) -> str:
    return "number" if is_number(value) else type(value).__name__


def accumulator_changes_kind(call: Call) -> bool:
    start = call.raw[2] if isinstance(call.raw, list) and len(call.raw) > 2 else None
    return any(kind(step) != kind(start) for step in call.parts[1:])


def odd_start(call: Call) -> bool:
    return isinstance(call.raw, list) and len(call.raw) > 2 and not is_scalar(call.raw[2])


def is_scalar(value: Any) -> bool:
    return value is not None and not is_container(value)


def odd_condition(call: Call) -> bool:
    body = call.raw[1] if isinstance(call.raw, list) and len(call.raw) > 1 else None
    return not isinstance(body, dict) or bool(list(body) == ["var"] and body["var"] != "")


def buckets(call: Call) -> list[Any]:
    return [part for part in call.parts if isinstance(part, list)]


def any_bucket(holds: Callable[[list[Any]], bool]) -> Callable[[Call], bool]:
    return lambda call: any(holds(bucket) for bucket in buckets(call))


def generation(name: str, holds: Callable[[Call], bool]) -> Callable[[Call], bool]:
    return lambda call: call.generation == name and bool(call.parts) and holds(call)


def targeting_key(call: Call) -> Any:
    return call.scope.get("targetingKey") if isinstance(call.scope, dict) else None


def inexact_within(value: Any) -> bool:
    if is_container(value):
        return any(map(inexact_within, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and abs(value) > EXACT


def odd_variant_text(call: Call) -> bool:
    result = call.parts[0] if call.parts else None
    return isinstance(result, str) and bool(re.search(r'[\x00-\x1f"<>&\\\u2028\u2029]', result))


def chosen_value(call: Call) -> Any:
    """The value that the flag comes to, as far as the rule shows it."""
    result = call.parts[0] if call.parts and call.parts[0] is not None else None
    name = call.raw.get("defaultVariant") if result is None else str(result)
    name = str(result).lower() if isinstance(result, bool) else name
    return call.raw["variants"].get(name)


def number_named_apart(call: Call) -> bool:
    result = call.parts[0] if call.parts else None
    return is_number(result) and (isinstance(result, float) or is_inexact(result))


def version_differs(call: Call) -> bool:
    versions = [part for part in call.parts[::2] if isinstance(part, str)]
    return any(re.match(r"[vV]?\d+(\.\d+)?[-+]", version) for version in versions)


def holds_object(value: Any) -> bool:
    """Whether an object stands somewhere in a list."""
    items = value if isinstance(value, list) else []
    return any(isinstance(item, dict) or holds_object(item) for item in items)
