"""Field types of the models of our kinds, and the reading of an object into a model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)", re.ASCII)
_LONGEST: Final = 366 * 24 * 3600.0
SHORTEST_INTERVAL: Final = 0.5
"""Seconds: a source that is looked at every millisecond would keep others from being looked at."""
LONGEST_TIMEOUT: Final = 600.0
"""Seconds: a server that never answers would keep one of few workers for as long."""


class Model(BaseModel):
    """Frozen; fields are named as in the manifest, in camelCase. Fields that we do not know are for a newer
    version to read.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class InvalidSpecError(ValueError):
    """An object's spec cannot be read; the text names each field and what is wrong with it."""


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        return value
    parts = _DURATION.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise ValueError("must be a duration such as 30s or 1m")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not 0 < seconds <= _LONGEST:
        raise ValueError("must be longer than nothing and shorter than a year")
    return seconds


Duration = Annotated[float, BeforeValidator(_seconds)]
"""Seconds, written as `30s` or `1h30m`."""
Interval = Annotated[Duration, AfterValidator(lambda seconds: max(seconds, SHORTEST_INTERVAL))]
"""Seconds; what is shorter than may be is read as what may be, as Flux takes it."""
Timeout = Annotated[Duration, AfterValidator(lambda seconds: min(seconds, LONGEST_TIMEOUT))]
"""Seconds; what is longer than may be is read as what may be."""
Name = Annotated[str, Field(min_length=1, max_length=253)]


class LocalReference(Model):
    """An object in the same namespace."""

    name: Name


T = TypeVar("T", bound=Model)


def read(model: type[T], spec: Mapping[str, Any], *, where: str = "spec") -> T:
    """`spec` as `model`. Raises InvalidSpecError, which names the fields as those of `where` and quotes no
    value: it may be one that does not belong there.
    """
    try:
        return model.model_validate(spec)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        problems = "; ".join(
            f"{'.'.join(map(str, (where, *each['loc'])))}: {each['msg'].removeprefix('Value error, ')}"
            for each in found[:5]
        )
        raise InvalidSpecError(problems) from None
