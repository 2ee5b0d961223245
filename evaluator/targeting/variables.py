"""`var`, `missing`, `missing_some`: reading the evaluation context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluator.targeting.site import Evaluate, Scope, Site, failing, inert, is_static
from evaluator.targeting.values import RuleError, is_number, number, text, whole

if TYPE_CHECKING:
    from evaluator.flags.model import Json

FLAGD = "$flagd"


def walk(value: Json, parts: tuple[str, ...], default: Json = None) -> Json:
    """Follow `parts` from `value`; `default` where the way ends or finds null. Text indexes a list as the number it reads as."""
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
    """What `var` finds in `data` once its argument is evaluated to `name`."""
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
    elif is_number(name):
        name = text(name)
    if data is None and name != "":
        return default
    if not isinstance(name, str):
        raise RuleError("the name of a variable must be text")
    return walk(data, split(name), default)


def split(name: str) -> tuple[str, ...]:
    """The parts of a dotted name; empty parts count for nothing."""
    return tuple(part for part in name.split(".") if part)


def variable(
    values: Json, site: Site, *, subject: bool = False, condition: bool = False
) -> Evaluate:
    """Compile `var`.

    subject: the list that a loop runs over, whose elements are not evaluated. condition: the whole body of `all`,
    `none` or `some`, which must still be a rule after substitution.
    """
    if site.scoped:
        return _scoped(values, site, subject=subject, condition=condition)
    if is_static(values):
        plain = _static(values, site)
    else:
        site.needs.flagd |= not site.in_body
        name_of, meter = site.child(values), site.metered()

        def plain(data: Json) -> Json:
            name = name_of(data)
            meter.name(name[0] if isinstance(name, list) and name else name)
            return look_up(name, data)

    if site.trace is None:
        return plain
    return lambda data: site.report(plain(data), name=_shown(values))


def _static(values: Json, site: Site) -> Evaluate:
    name = values[0] if isinstance(values, list) and values else values
    parts = split(name) if isinstance(name, str) else ()
    if not isinstance(name, str) or not parts or site.in_body:
        site.needs.flagd |= not site.in_body
        return lambda data: look_up(values, data)
    default = values[1] if isinstance(values, list) and len(values) == 2 else None
    first, rest = parts[0], parts[1:]
    if first == FLAGD:
        if rest == ("flagKey",):
            return lambda _: site.flag_key
        site.needs.flagd = True
    if rest or default is not None:
        return lambda data: (
            walk(data.get(first), rest, default) if rest else _or(data, first, default)
        )
    return lambda data: data.get(first)


def _or(data: Json, key: str, default: Json) -> Json:
    value = data.get(key)
    return default if value is None else value


def _scoped(values: Json, site: Site, *, subject: bool, condition: bool) -> Evaluate:
    """Within a substituted body: the solvers are asked first, then the element. A name's own expression is never substituted."""
    kept = isinstance(values, str) and (not values or values.startswith("."))
    meter = site.metered()
    name_of = site.body(values, scoped=False)

    def scoped(scope: Scope) -> Json:
        if not kept:
            for solver in scope.solvers:
                value = look_up(name_of(solver), solver)
                if value is not None:
                    if condition and not isinstance(value, dict):
                        raise RuleError("a condition in a loop must be a rule, not a variable")
                    return site.report(
                        value if subject else inert(value, meter), name=_shown(values)
                    )
        value = look_up(name_of(scope.data), scope.data)
        return site.report(value, name=_shown(values))

    return scoped


def _shown(values: Json) -> Json:
    return values[0] if isinstance(values, list) and values else values


def _data(argument: Json) -> Json:
    return argument.data if isinstance(argument, Scope) else argument


def missing(values: Json, site: Site) -> Evaluate:
    """Compile `missing`: those of the names that the context lacks."""
    site.needs.flagd |= not site.in_body
    names_of = site.child(values)
    meter = site.metered()

    def lacking(argument: Json) -> Json:
        names = names_of(argument)
        names = [names] if isinstance(names, str) else names
        if not isinstance(names, list):
            raise RuleError("missing needs names")
        data = _data(argument)
        return [name for name in names if look_up(meter.name(name), data) is None]

    return lacking


def missing_some(values: Json, site: Site) -> Evaluate:
    """Compile `missing_some`: the missing names, or none if enough are there."""
    if not isinstance(values, list | dict):
        return failing("missing_some needs a number and names")
    site.needs.flagd |= not site.in_body
    arguments_of = site.child(values)
    meter = site.metered()

    def lacking(argument: Json) -> Json:
        arguments = arguments_of(argument)
        if not isinstance(arguments, list) or len(arguments) < 2:
            raise RuleError("missing_some needs a number and names")
        enough, names = whole(number(arguments[0])), arguments[1]
        if not isinstance(names, list):
            raise RuleError("missing_some needs names")
        data = _data(argument)
        absent = [name for name in names if look_up(meter.name(name), data) is None]
        return absent if enough > len(names) - len(absent) else []

    return lacking
