"""What injection would refuse of a FeatureFlagSource that a pod names. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.api.objects.fields import read
from controller.api.openfeature.featureflagsource import FeatureFlagSourceSpec
from controller.pods.settings.installation import Refused
from controller.pods.settings.source_settings import check_source, provider_of, variables, warnings
from controller.validation.structural_schema import SchemaProblem
from evaluator.flags.syntax.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def setting_problems(settings: Mapping[str, Any]) -> Iterator[SchemaProblem]:
    """Yield the problems of a spec that its model takes, whatever pod names the object and whichever options
    injection has.
    """
    spec = read(FeatureFlagSourceSpec, settings)
    for number, source in enumerate(spec.sources):
        try:
            check_source(source, provider_of(source, spec), "")
        except Refused as refusal:
            yield SchemaProblem(("spec", "sources", number), str(refusal).removeprefix(": "), "invalid-spec")
    try:
        tuple(variables(spec))
    except Refused as refusal:
        message = str(refusal).removeprefix("FeatureFlagSource: ")
        yield SchemaProblem(("spec",), message, "invalid-spec")
    for warning in warnings(spec):
        message = warning.removeprefix("FeatureFlagSource: ")
        yield SchemaProblem(("spec",), message, "ignored-field", severity=Severity.NOTE)
