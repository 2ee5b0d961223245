"""Statuses as objects hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.status import StatusModel


def find(status: Mapping[str, Any], type_: str) -> Mapping[str, Any] | None:
    """The condition of a type, or None."""
    return next((each for each in status.get("conditions", ()) if each["type"] == type_), None)


def stored_fields(status: StatusModel) -> dict[str, Any]:
    """The fields that an object has once they are written."""
    return {name: value for name, value in status.fields().items() if value is not None}
