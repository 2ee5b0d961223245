"""The schema of a flagd document within an object: its parser is the evaluator's, so little is said of it."""

from __future__ import annotations

from typing import Any, Final

from pydantic import WithJsonSchema

from controller.api.objects.schema_words import ATOMIC, OPEN

_ANY: Final[dict[str, Any]] = {"type": "object", OPEN: True}
_FLAG: Final[dict[str, Any]] = {
    **_ANY,
    "properties": {
        "state": {
            "description": "ENABLED, or DISABLED, where the caller's default is answered.",
            "type": "string",
        },
        "variants": {"description": "Values by name; all of one type.", **_ANY},
        "defaultVariant": {
            "description": (
                "The variant that is answered where targeting names none; null or absent is the caller's "
                "default."
            ),
            "type": "string",
            "nullable": True,
        },
        "targeting": {
            "description": "A JSONLogic rule that returns a variant's name.",
            **_ANY,
            "nullable": True,
        },
        "metadata": {"description": "Strings, numbers and booleans that are part of each answer.", **_ANY},
    },
}
FLAGD_DOCUMENT: Final = WithJsonSchema(
    {
        "type": "object",
        "required": ["flags"],
        "properties": {
            # Replaced whole by one owner: tracking each of ten thousand flags would not fit into an object.
            "flags": {
                "description": "Flags by key.",
                "type": "object",
                **ATOMIC,
                "additionalProperties": _FLAG,
            },
            "$evaluators": {"description": "Shared rules by name.", **_ANY, **ATOMIC},
            "metadata": {"description": "Of the set; merged under each flag's own.", **_ANY},
        },
    }
)
"""Of FeatureFlagConfiguration and FeatureFlag."""
