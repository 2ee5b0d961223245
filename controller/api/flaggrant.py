"""FlagGrant: lets objects of other namespaces refer to those of its own, as a ReferenceGrant does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from controller.api.fields import Model, Name
from controller.api.kind import (
    AGE_COLUMN,
    FOLLOWED_BY_ADMISSION,
    FOLLOWED_BY_PROXY,
    READ_BY_CONTROLLER,
    Kind,
    PrinterColumn,
)
from controller.api.meta import API_VERSION
from controller.api.records import GRANTED

KIND: Final = "FlagGrant"


if TYPE_CHECKING:
    GrantedKind = str
else:
    GrantedKind = Literal[tuple(each.kind for each in GRANTED)]


class GrantFrom(Model):
    """Objects of one kind in another namespace."""

    group: Literal["", "flagstaff.dev"]
    """The group of the objects that refer; empty for Pods."""
    kind: Literal["FlagAlert", "FlagSet", "Pod"]
    """The kind of the objects that refer."""
    namespace: Annotated[str, Field(min_length=1, max_length=63)]
    """The namespace of the objects that refer. There is no sign for all namespaces."""


class GrantTo(Model):
    """Objects of one kind in the grant's namespace, or the one of that name."""

    group: Literal["flagstaff.dev", "core.openfeature.dev", "source.toolkit.fluxcd.io"]
    """The group of the objects."""
    kind: GrantedKind
    """The kind of the objects."""
    name: Name | None = None
    """One object; every object of the kind in the grant's namespace if it is not set."""


class FlagGrantSpec(Model):
    """Each of `from` may refer to each of `to`."""

    from_: Annotated[tuple[GrantFrom, ...], Field(alias="from", min_length=1, max_length=64)]
    """Who may refer to the objects."""
    to: Annotated[tuple[GrantTo, ...], Field(min_length=1, max_length=64)]
    """The objects in the grant's namespace that may be referred to."""


RECORD: Final = Kind(
    API_VERSION,
    KIND,
    "flaggrants",
    short_name="fgrant",
    description=(
        "FlagGrant lets objects of other namespaces refer to those beside it, as Gateway API's "
        "ReferenceGrant does."
    ),
    spec=FlagGrantSpec,
    spec_description="Each of from may refer to each of to.",
    columns=(
        PrinterColumn("From", ".spec.from[*].namespace"),
        PrinterColumn("To", ".spec.to[*].kind"),
        AGE_COLUMN,
    ),
    status=None,
    rights=(READ_BY_CONTROLLER, FOLLOWED_BY_PROXY, FOLLOWED_BY_ADMISSION),
    quota=20,
)
