"""Field types of the models of our kinds, the rules of a spec, and the reading of an object into a model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import core_schema

from controller.api.parsing import INVALID, InvalidTextError, require_object_name
from controller.api.references import parse_range
from evaluator.host.texts import cut
from evaluator.host.times import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import ErrorDetails, InitErrorDetails

    from controller.api.meta import Resource


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


_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))+")
"""Of Go's durations, those that the schema of the CRDs takes, too."""
_LONGEST: Final = 366 * 24 * 3600.0
SHORTEST_INTERVAL: Final = 0.5
"""Seconds: a source that is polled every millisecond would keep others from being polled."""
LONGEST_TIMEOUT: Final = 600.0
"""Seconds: a server that never answers would keep one of few workers for as long."""


class Model(BaseModel):
    """Frozen; fields are named as in the manifest, in camelCase. Fields that we do not know are for a newer
    version to read.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)

    def cluster_problems(self) -> Iterable[SpecProblem]:
        """Return the problems that it has only in a cluster: a command line may supply what is missing."""
        return ()


@dataclass(frozen=True, slots=True)
class SpecProblem:
    """What is wrong with one field of a spec."""

    field: str
    """The path of the field, such as `spec.git.url`."""
    message: str
    reason: str = INVALID
    """The reason of the condition that reports the problem."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class InvalidSpecError(InvalidTextError):
    """An object's spec cannot be read; the text names each field and what is wrong with it."""


_LONGEST_PROBLEM: Final = 500
"""Characters of one problem of a spec."""


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        return value
    seconds = parse_duration(value) if _DURATION.fullmatch(value) else None
    if seconds is None:
        raise ValueError("must be a duration such as 30s or 1m")
    if not 0 < seconds <= _LONGEST:
        raise ValueError("must be longer than nothing and shorter than a year")
    return seconds


def _duration_schema(*units: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": rf"^([0-9]+(\.[0-9]+)?({'|'.join(units)}))+$"})


Duration = Annotated[float, BeforeValidator(_seconds), _duration_schema("ms", "s", "m", "h")]
"""Seconds, written as `30s` or `1h30m`."""
Interval = Annotated[Duration, AfterValidator(lambda seconds: max(seconds, SHORTEST_INTERVAL))]
"""Seconds; a shorter one is read as `SHORTEST_INTERVAL`, as Flux does."""
Timeout = Annotated[
    Duration, AfterValidator(lambda seconds: min(seconds, LONGEST_TIMEOUT)), _duration_schema("ms", "s", "m")
]
"""Seconds; a longer one is read as `LONGEST_TIMEOUT`."""
Name = Annotated[str, Field(min_length=1, max_length=253)]
Labels = Annotated[
    dict[Annotated[str, Field(max_length=317)], Annotated[str, Field(max_length=63)]], Field(max_length=32)
]


def that(require: Callable[[Any], object], reason: str = "") -> AfterValidator:
    """Refuses a value for which `require` raises, for that `reason` where it is given."""

    def same(value: Any) -> Any:
        try:
            require(value)
        except InvalidTextError as error:
            raise InvalidTextError(str(error), reason or error.reason) from None
        return value

    return AfterValidator(same)


def one_of(names: Sequence[str]) -> AfterValidator:
    """Refuses any other text, where the CustomResourceDefinition takes all; an empty one counts as none."""

    def require(text: str) -> None:
        if text and text not in names:
            raise InvalidTextError(f"must be one of {', '.join(names)}")

    return that(require)


def between(least: int, most: int) -> AfterValidator:
    """Refuses any other number, where the CustomResourceDefinition takes all."""

    def require(number: Any) -> None:
        if not least <= number <= most:
            raise InvalidTextError(f"must be from {least} to {most}")

    return that(require)


ObjectName = Annotated[Name, in_schema(pattern="^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"), that(require_object_name)]
ShortText = Annotated[str, Field(min_length=1, max_length=255)]
VersionRange = Annotated[ShortText, that(parse_range)]
"""A range over versions, such as `>=1.0.0 <2.0.0`."""


class LocalReference(Model):
    """An object in the same namespace."""

    name: ObjectName
    """The object's name."""


T = TypeVar("T", bound=Model)


def read(model: type[T], spec: Mapping[str, Any], *, where: str = "spec") -> T:
    """`spec` as `model`. Raises InvalidSpecError, which names the fields as those of `where`, with the reason
    of the first problem.
    """
    try:
        return model.model_validate(spec)
    except ValidationError as error:
        raise _invalid(_problems(error, where)) from None


def require(problems: Iterable[SpecProblem]) -> None:
    """Raise InvalidSpecError where there are any, with the reason of the first."""
    if listed := tuple(problems):
        raise _invalid(listed)


def validate(model: type[Model], spec: object) -> tuple[SpecProblem, ...]:
    """Return all problems of `spec`, in the order of the model's fields. A problem of several fields together
    is found only once each field is valid.
    """
    try:
        return tuple(model.model_validate(spec).cluster_problems())
    except ValidationError as error:
        return _problems(error, "spec")


def refuse(problems: Iterable[SpecProblem]) -> None:
    """Raise the problems that a model's validator has, if any. Their fields are paths below the model."""
    errors: list[InitErrorDetails] = [
        {
            "type": "value_error",
            "loc": tuple(problem.field.split(".")) if problem.field else (),
            "input": None,
            "ctx": {"error": InvalidTextError(problem.message, problem.reason)},
        }
        for problem in problems
    ]
    if errors:
        raise ValidationError.from_exception_data("", errors)


def _invalid(problems: Sequence[SpecProblem]) -> InvalidSpecError:
    # A key or a value that a message quotes may be as long as an object.
    texts = (str(problem) for problem in problems[:5])
    return InvalidSpecError("; ".join(cut(text, _LONGEST_PROBLEM) for text in texts), problems[0].reason)


_WORDS: Final = {
    "extra_forbidden": "is not known",
    "missing": "is required",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "tuple_type": "must be a list",
    "dict_type": "must have fields",
    "model_type": "must have fields",
    "literal_error": "must be one of {expected}",
    "enum": "must be one of {expected}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_pattern_mismatch": "must match {pattern}",
}
"""The faults of values, by pydantic's names for them."""


def _problems(error: ValidationError, where: str) -> tuple[SpecProblem, ...]:
    """No value is quoted: it may be one that does not belong there."""
    faults = error.errors(include_url=False, include_input=False)
    # A list counts its items without those that are wrong.
    wrong = {fault["loc"][:-1] for fault in faults}
    return tuple(
        SpecProblem(
            ".".join(map(str, (where, *fault["loc"]))),
            _in_words(fault),
            getattr(fault.get("ctx", {}).get("error"), "reason", INVALID),
        )
        for fault in faults
        if fault["type"] != "too_short" or not any(loc[: len(fault["loc"])] == fault["loc"] for loc in wrong)
    )


def _in_words(fault: ErrorDetails) -> str:
    context = fault.get("ctx", {})
    if context.get("min_length") == 1:
        return "must not be empty"
    own = fault["msg"].removeprefix("Value error, ")
    return _WORDS[fault["type"]].format_map(context) if fault["type"] in _WORDS else own


@dataclass(frozen=True, slots=True)
class SpecRule:
    """One rule, of a model's `RULES` or among the annotations of a field's type."""

    cel: str
    """Over `self`."""
    message: str
    holds: Callable[[Any], bool] | None = None
    """The same in Python; None where the field's own parser refuses what breaks it."""

    @property
    def schema(self) -> dict[str, str]:
        """Return the rule as in a structural schema."""
        return {"rule": self.cel, "message": self.message}

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Judge a field."""
        return core_schema.no_info_after_validator_function(self._validate, handler(source))

    def __get_pydantic_json_schema__(
        self, core: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Publish it with the field."""
        schema = handler(core)
        return {**schema, RULES: [*schema.get(RULES, ()), self.schema]}

    def _validate(self, value: Any) -> Any:
        if self.holds is not None and not self.holds(value):
            raise InvalidTextError(self.message)
        return value


class RuledModel(Model):
    """A model whose fields depend on each other."""

    RULES: ClassVar[tuple[SpecRule, ...]] = ()

    @model_validator(mode="after")
    def _keeps_its_rules(self) -> Self:
        refuse(
            SpecProblem("", rule.message)
            for rule in self.RULES
            if rule.holds is not None and not rule.holds(self)
        )
        return self


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
