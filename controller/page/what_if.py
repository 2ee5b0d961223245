"""What a flag gives for a context that a person enters, and why. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from controller.page.flag_rows import expand_rule
from evaluator.flags.model import ABSENT, CONFIDENTIAL_KEY, Flag, Json, Path
from evaluator.resolving.explain import TraceStep, explain
from evaluator.resolving.rule_words import TRUTHS, Split, condition, splits, value, variables
from evaluator.targeting.values import MOST_LEVELS, nests_deeper

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.resolving.resolve import CompiledFlagSet

USER: Final = "targetingKey"
ATTRIBUTE: Final = "attribute."
"""The prefix of the names of fields with attributes."""
OTHERS: Final = "others"
"""The field with more attributes, as a JSON object."""
MOST_ATTRIBUTES: Final = 12
_ADDED: Final = "$flagd"
_MOST_BYTES: Final = 50_000


class InvalidContextError(ValueError):
    """The text is no context; it says why."""


@dataclass(frozen=True, slots=True)
class ShownStep:
    """One step of a trace."""

    words: str
    """Empty: `text` says it."""
    text: str
    """As `flagstaff explain` prints it."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """An answer and how it came about."""

    variant: str
    """Empty: the caller's own default."""
    value: Any
    shows_value: bool
    reason: str
    error: str
    steps: tuple[ShownStep, ...]
    buckets: tuple[str, ...]
    """`user-42 is in bucket 45 of 100; on is 0 to 24`, for each assignment on the way."""


def attributes_of(flag: Flag, flags: CompiledFlagSet) -> list[str]:
    """The attributes that the served flag's rule reads, beside the targeting key and what flagd adds."""
    names = variables(expand_rule(flag.targeting, flags))
    return [name for name in names if name != USER and not name.startswith(_ADDED)][:MOST_ATTRIBUTES]


def read_context(form: Mapping[str, str]) -> dict[str, Any]:
    """The context of a form. Raises InvalidContextError."""
    if sum(map(len, form.values())) > _MOST_BYTES:
        raise InvalidContextError("The context is too large.")
    context = _read_object(form.get(OTHERS, ""))
    for field, text in form.items():
        if field.startswith(ATTRIBUTE) and text.strip():
            _set_attribute(context, field.removeprefix(ATTRIBUTE), read_value(text))
    if nests_deeper(context, MOST_LEVELS):
        raise InvalidContextError(f"The context nests deeper than {MOST_LEVELS} levels.")
    if form.get(USER, "").strip():
        context[USER] = form[USER].strip()
    return context


def read_value(text: str) -> Any:
    """A number, true, false, null, a list, an object or a text in quotes as JSON; else the text itself."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text.strip()


def what_if(flags: CompiledFlagSet, key: str, context: Mapping[str, Any], now: int) -> WhatIf:
    """Evaluate a flag that the set has. now: Unix seconds."""
    explained = explain(flags, key, None, context, now)
    resolution = explained.resolution
    user = str(context.get(USER, ""))
    steps, buckets = [], []
    # The conditions of rollouts and overrides are not the user's: the last steps say what came of them.
    for step in explained.steps:
        if step.layer:
            continue
        whole = flags.flag_set.flags[step.needed or key].targeting
        own_path, own_rule = (step.own.path, step.own.rule) if step.own is not None else ((), whole)
        rule, path = expand_rule(own_rule, flags), tuple(step.path[len(own_path) :])
        assigned = {split.path: split for split in splits(rule)}
        steps.append(ShownStep(_step_words(step, path, rule), str(step)))
        buckets.append(_bucket_words(step, assigned.get(path), user))
    return WhatIf(
        resolution.variant or "",
        resolution.value,
        resolution.variant is not None and CONFIDENTIAL_KEY not in resolution.metadata,
        resolution.reason.value,
        "" if resolution.error_code is None else f"{resolution.error_code.value}: {resolution.error_message}",
        tuple(steps),
        tuple(words for words in buckets if words),
    )


def _step_words(step: TraceStep, path: Path, rule: Json) -> str:
    """A step in words; empty where it is no condition."""
    if step.name == "var":
        name = step.particulars.get("name")
        predicate = "is not given" if step.value is None else f"is {value(step.value)}"
        return f"{name} {predicate}" if isinstance(name, str) and name else ""
    node = None if rule is ABSENT else rule
    for part in path[:-1]:
        if isinstance(part, int):
            node = node[part] if isinstance(node, list) and part < len(node) else None
        else:
            node = node.get(part) if isinstance(node, dict) else None
    if not isinstance(node, dict) or step.name not in node:
        return ""
    if step.name in TRUTHS or step.name in {"and", "or"}:
        return f"{condition(node).text}: {'yes' if step.value else 'no'}"
    if "bucket" in step.particulars:
        return f"Bucket {step.particulars['bucket']} of {step.particulars['of']} gives {value(step.value)}"
    return f"So far: {value(step.value)}" if step.name in {"if", "?:"} else ""


def _bucket_words(step: TraceStep, split: Split | None, user: str) -> str:
    bucket = step.particulars.get("bucket")
    if bucket is None:
        return ""
    who = user if split is not None and split.by == "user" else "The hashed value"
    ranges = "" if split is None else "; ".join(
        f"{share.variant or 'the default'} is {share.first} to {share.end - 1}" for share in split.shares
    )  # fmt: skip
    return f"{who} is in bucket {bucket} of {step.particulars['of']}{'; ' if ranges else ''}{ranges}"


def _read_object(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        read = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidContextError(f"Other attributes are not JSON: {error}") from None
    if not isinstance(read, dict):
        raise InvalidContextError('Other attributes are a JSON object, such as {"plan": "pro"}.')
    return read


def _set_attribute(context: dict[str, Any], name: str, value: Any) -> None:
    """Set an attribute; a rule reads `address.city` from the object `address`."""
    *outer, last = name.split(".")
    place = context
    for part in outer:
        inner = place.setdefault(part, {})
        if not isinstance(inner, dict):
            return
        place = inner
    place[last] = value
