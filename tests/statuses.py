"""Statuses as objects hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.status import StatusModel


def find(status: Mapping[str, Any], type_: str) -> Mapping[str, Any] | None:
    """The condition of a type, or None."""
    return next((each for each in status.get("conditions", ()) if each["type"] == type_), None)


def read_condition(status: Mapping[str, Any], type_: str = "Ready") -> tuple[str, str, str]:
    """(status, reason, message) of the condition of a type, which is there."""
    found = find(status, type_)
    assert found is not None, f"{type_} is not among the conditions"
    return found["status"], found["reason"], found["message"]


def stored_fields(status: StatusModel) -> dict[str, Any]:
    """The fields that an object has once they are written."""
    return {name: value for name, value in status.fields().items() if value is not None}
