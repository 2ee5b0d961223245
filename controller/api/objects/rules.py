"""Rules that a spec declares once: in CEL for the API server, and in Python for whoever reads one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import model_validator
from pydantic_core import core_schema

from controller.api.objects.fields import Model, SpecProblem, refuse
from controller.api.objects.schema_words import RULES
from controller.api.parsing import InvalidTextError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue


@dataclass(frozen=True, slots=True)
class Rule:
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

    RULES: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _keeps_its_rules(self) -> Self:
        refuse(
            SpecProblem("", rule.message)
            for rule in self.RULES
            if rule.holds is not None and not rule.holds(self)
        )
        return self
