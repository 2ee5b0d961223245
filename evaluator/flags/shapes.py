"""What a flag must look like: flagd's schema (https://flagd.dev/schema/v0/flags.json) and what flagd itself
refuses.

An error is what flagd could not load; whatever else is wrong is a warning.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from evaluator.flags.known_operators import shorten
from evaluator.flags.layer import FIELDS, KNOWN, Assembled
from evaluator.flags.model import ABSENT, EMPTY, Flag, Json, Scalar, State
from evaluator.flags.problems import Piece, Severity
from evaluator.flags.schedules import write_schedules
from evaluator.flags.suggestions import Words, unknown_field, unknown_name, unknown_state
from evaluator.flags.text import choices, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


UNKNOWN_FIELD: Final = "unknown-field"
_INCOMPLETE: Final = frozenset({"missing-state", "missing-variants", "unknown-variant"})
"""Problems of every flag whose base layer is missing."""
_FIELD_WORDS: Final = Words(FIELDS)
_KINDS: Final[dict[type, str]] = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    dict: "object",
}
_NONE: Final[frozenset[str]] = frozenset()
_SCALARS: Final = frozenset({bool, int, float, str})
_LINE_BREAK: Final = re.compile("[\n\r\u2028\u2029]")


def unusual(name: str) -> bool:
    """Return whether the schema's `^.{1,}$` refuses the name: empty, or with a line break."""
    return not name or _LINE_BREAK.search(name) is not None


def check_shape(flag: Assembled) -> Flag:
    """Return the flag and add its problems to `findings`; after an error the flag must not be used."""
    value = flag.value
    if unusual(flag.key):
        flag.warn("unusual-name", "a flag's key must not be empty or have a line break; rename it")
    if not value.keys() <= KNOWN:
        for name in value.keys() - KNOWN:
            severity, near = unknown_name(name, _FIELD_WORDS)
            flag.find(severity, UNKNOWN_FIELD, partial(unknown_field, name, near), name, at_key=True)
    variants = _variants(flag, value.get("variants"))
    return Flag(
        key=flag.key,
        state=_state(flag, value.get("state")),
        variants=variants,
        default_variant=_default_variant(flag, value.get("defaultVariant"), variants),
        targeting=write_schedules(value.get("targeting", ABSENT)),
        metadata=_metadata(flag, value["metadata"]) if "metadata" in value else EMPTY,
        without=_without(value.get("metadata")),
    )


def check_base(flag: Assembled, first: Piece, lower: Iterable[str]) -> None:
    """Judge a flag whose first piece is above the lowest layer. A complete flag gets a note; any other gets
    one problem instead of one for each missing field. `lower`: the keys of the layers below that piece.
    """
    key, suggestions = flag.key, flag.suggestions
    lacks = [finding for finding in flag.findings if finding.code in _INCOMPLETE]
    if not any(finding.code == "missing-variants" for finding in lacks):

        def addition() -> str:
            near = suggestions.did_you_mean(key, lower)
            return f"no lower layer has the flag {quote(key)}{near}; this layer adds it"

        flag.findings.append(first.finding(Severity.NOTE, "added-flag", addition, key, at_key=True))
        return
    severity = min((finding.severity for finding in lacks), key=list(Severity).index)

    def change() -> str:
        return (
            f"this layer changes {quote(key)}, which no lower layer defines"
            f"{suggestions.did_you_mean(key, lower)}; "
            "define it below, or write its `state` and `variants` here"
        )

    flag.findings[:] = [finding for finding in flag.findings if finding not in lacks]
    flag.findings.append(first.finding(severity, "missing-base", change, key, at_key=True))


def _state(flag: Assembled, state: Json) -> State:
    if state in ("ENABLED", "DISABLED"):
        return State(state)
    if state is None:
        message = (
            '`state` is missing and flagd would treat the flag as enabled; write "ENABLED" or "DISABLED"'
        )
        flag.warn("missing-state", message, "state")
    elif isinstance(state, str):
        flag.warn("unknown-state", partial(unknown_state, state), "state")
    else:
        message = f'`state` must be "ENABLED" or "DISABLED", not {shorten(state)}'
        flag.error("wrong-state", message, "state")
    return State.ENABLED


def _variants(flag: Assembled, variants: Json) -> Mapping[str, Json]:
    if variants is None:
        message = (
            '`variants` is missing, so the flag has no value to serve; add it: {"on": true, "off": false}'
        )
        flag.warn("missing-variants", message, "variants")
        return EMPTY
    if not isinstance(variants, dict):
        message = f"`variants` must be an object of values by name, not {shorten(variants)}"
        flag.error("wrong-variants", message, "variants")
        return EMPTY
    if not variants:
        message = (
            '`variants` is empty, so the flag has no value to serve; add some: {"on": true, "off": false}'
        )
        flag.warn("empty-variants", message, "variants")
        return variants
    kinds = {name: _KINDS.get(type(value)) for name, value in variants.items()}
    for name, kind in kinds.items():
        if unusual(name):
            message = "a variant's name must not be empty or have a line break; rename it"
            flag.warn("unusual-name", message, "variants", name, at_key=True)
        if kind is None:
            message = (
                f"a variant must be a boolean, a string, a number or an object, not {shorten(variants[name])}"
            )
            flag.warn("variant-type", message, "variants", name)
    if len(set(kinds.values()) - {None}) > 1:
        _report_mixed(flag, {name: kind for name, kind in kinds.items() if kind is not None})
    return variants


def _report_mixed(flag: Assembled, kinds: dict[str, str]) -> None:
    """Report a variant of the latest layer whose type differs from those of earlier layers."""
    layers = {name: flag.index("variants", name) for name in kinds}
    model = min(kinds, key=lambda name: layers[name])
    other = [name for name, kind in kinds.items() if kind != kinds[model]]
    culprit = max(other, key=lambda name: layers[name])
    message = (
        f"the variant {quote(culprit)} is of type {kinds[culprit]}, "
        f"but {quote(model)} of type {kinds[model]}; "
        "make all variants of one type"
    )
    flag.warn("mixed-variants", message, "variants", culprit)


def _default_variant(flag: Assembled, name: Json, variants: Mapping[str, Json]) -> str | None:
    if name is None or name == "":
        return None
    if not isinstance(name, str):
        message = f"`defaultVariant` must be the name of a variant or null, not {shorten(name)}"
        flag.error("wrong-default-variant", message, "defaultVariant")
        return None
    unknown = flag.value.get("variants") is None or isinstance(flag.value["variants"], dict)
    if name not in variants and unknown:
        _missing_default(flag, name, variants)
    return name


def _missing_default(flag: Assembled, name: str, variants: Mapping[str, Json]) -> None:
    said, removed = flag.index("defaultVariant"), flag.index("variants", name)
    if removed > said:
        message = (
            f"the variant {quote(name)} is removed here, but `defaultVariant` still names it; change that too"
        )
        flag.error("unknown-variant", message, "variants", name)
        return
    suggestions = flag.suggestions

    def text() -> str:
        if variants:
            near = suggestions.did_you_mean(name, variants)
            remedy = f"add it{near} or choose one of {choices(variants)}"
        else:
            remedy = "add it, or set `defaultVariant` to null"
        return f"`variants` has no {quote(name)}, which is the `defaultVariant`; {remedy}"

    flag.error("unknown-variant", text, "defaultVariant")


def _metadata(flag: Assembled, metadata: Json) -> Mapping[str, Scalar]:
    if metadata is None:
        flag.note("null-section", "`metadata` is null, and counts as empty", "metadata")
        return EMPTY
    if not isinstance(metadata, dict):
        message = f"`metadata` must be an object, not {shorten(metadata)}"
        flag.error("wrong-metadata", message, "metadata")
        return EMPTY
    kept: dict[str, Any] = {}
    for key, value in metadata.items():
        if type(value) in _SCALARS:
            kept[key] = value
        else:
            flag.warn("metadata-type", metadata_message(value), "metadata", key)
    return kept


def _without(metadata: Json) -> frozenset[str]:
    if not isinstance(metadata, dict) or None not in metadata.values():
        return _NONE
    return frozenset(key for key, value in metadata.items() if value is None)


def scalar(value: Json) -> bool:
    """Return whether metadata may hold the value."""
    return type(value) in _SCALARS


def metadata_message(value: Json) -> str:
    """Return the message about a metadata entry that is left out."""
    if value is None:
        return (
            "metadata must be text, a number or a boolean, not null, which hides the entry of the set; "
            "remove it"
        )
    return f"metadata must be text, a number or a boolean, not {shorten(value)}, which is ignored; remove it"
