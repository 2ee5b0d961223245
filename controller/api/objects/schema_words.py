"""Words of a structural schema that pydantic has no name for."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

OPEN: Final = "x-kubernetes-preserve-unknown-fields"
RULES: Final = "x-kubernetes-validations"
ATOMIC: Final = {"x-kubernetes-map-type": "atomic"}
INT32: Final = Field(json_schema_extra={"format": "int32"})
INT64: Final = Field(json_schema_extra={"format": "int64"})
TIME: Final = Field(json_schema_extra={"format": "date-time"})


def in_schema(**words: Any) -> Any:
    """Return a field's annotation that adds words to its schema, and to nothing else. `x_default` is the
    default that the API server fills in, where that is not the model's; None: it fills in none.
    """
    return Field(
        json_schema_extra={
            name.replace("_", "-") if name.startswith("x_") else name: word for name, word in words.items()
        }
    )


ATOMIC_LIST: Final = in_schema(x_kubernetes_list_type="atomic")
