"""The first form of `featureFlagSpec`, from before flagd had a schema.

It is known by being a JSON string. It may lack the `flags` wrapper, write states in lower case, have a
`returnType`, define a disabled flag by its state alone, and say its targeting as a list of rules.
"""

from __future__ import annotations

from typing import Any, Final

_TYPES: Final = {"string": str, "boolean": bool, "number": (int, float), "integer": int, "object": dict}
_NOTHING: Final = {"disabled": False}
"""What a disabled flag without variants gets: it is never asked for."""


def modernise(document: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the document as flagd reads it, and warnings. The parser reports what is not a flag."""
    wrapped = document if isinstance(document.get("flags"), dict | list) else {"flags": document}
    flags = wrapped["flags"]
    if not isinstance(flags, dict):
        return wrapped, ()
    warnings: list[str] = []
    modern = {
        key: _flag(key, flag, warnings) if isinstance(flag, dict) else flag for key, flag in flags.items()
    }
    return {**wrapped, "flags": modern}, tuple(warnings)


def _flag(key: str, flag: dict[str, Any], warnings: list[str]) -> dict[str, Any]:
    modern = {name: value for name, value in flag.items() if name not in {"returnType", "rules"}}
    state = flag.get("state")
    if isinstance(state, str) and state.upper() in {"ENABLED", "DISABLED"}:
        modern["state"] = state.upper()
    if modern.get("state") == "DISABLED" and not flag.get("variants"):
        modern["variants"] = _NOTHING
    if "rules" in flag and "targeting" not in flag:
        modern["targeting"] = _translate_rules(flag["rules"])
    kind = _TYPES.get(str(flag.get("returnType")))
    variants = flag.get("variants")
    if kind is not None and isinstance(variants, dict):
        odd = [name for name, value in variants.items() if not _is(value, kind)]
        if odd:
            wrong = ", ".join(sorted(odd))
            warnings.append(f"flag {key!r}: returnType is {flag['returnType']}, not so: {wrong}")
    return modern


def _is(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _translate_rules(rules: Any) -> Any:
    """Return the old rules as one: the first whose conditions all hold gives its variant."""
    if not isinstance(rules, list):
        return rules
    steps: list[Any] = []
    for rule in rules:
        try:
            variant = rule["action"]["variant"]
            conditions = [_condition(condition) for condition in rule.get("conditions") or ()]
        except (KeyError, TypeError, AttributeError):
            # Not what a rule is: the parser says so, with its place, of what cannot be an operator.
            return {"rules": rules}
        steps += [_all(conditions), variant]
    return {"if": [*steps, None]} if steps else {}


def _all(conditions: list[Any]) -> Any:
    """Return the conjunction of conditions; true without any, where flagd's `and` would be false."""
    if len(conditions) > 1:
        return {"and": conditions}
    return conditions[0] if conditions else True


def _condition(condition: dict[str, Any]) -> dict[str, Any]:
    return {condition["op"]: [{"var": condition["context"]}, condition["value"]]}
