"""A spec as the model of its kind, read once for each generation of its object."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from controller.api.objects.fields import InvalidSpecError, Model, read

if TYPE_CHECKING:
    from controller.api.objects.meta import Resource

T = TypeVar("T", bound=Model)


def parse_spec(model: type[T], resource: Resource) -> T:
    """Return an object's spec as `model`. Raises InvalidSpecError, as `read` does."""
    known = resource.parsed_spec
    if not isinstance(known, (model, InvalidSpecError)):
        try:
            known = read(model, resource.spec)
        except InvalidSpecError as error:
            known = error
        object.__setattr__(resource, "parsed_spec", known)
    if isinstance(known, InvalidSpecError):
        # Another instance: each raise would add to the traceback of one.
        raise InvalidSpecError(str(known), known.reason)
    return known


def keep_parsed(before: Resource | None, after: Resource) -> None:
    """Take over what was read of the same generation: a status that changes has no spec read again."""
    if before is not None and (before.uid, before.generation) == (after.uid, after.generation) != ("", 0):
        object.__setattr__(after, "parsed_spec", before.parsed_spec)
