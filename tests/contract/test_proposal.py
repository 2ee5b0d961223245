"""The manifest of the first design discussion, evaluated as those who wrote it meant it."""

from __future__ import annotations

import pytest
import yaml

from controller.api.featureflagconfiguration import flag_document
from controller.api.meta import Resource
from evaluator.flags.merge import parse
from evaluator.resolving.resolution import FlagType
from evaluator.resolving.resolve import CompiledFlagSet, compile_flag_set, resolve
from tests.proposal import manifest


@pytest.fixture
def flags() -> CompiledFlagSet:
    document = flag_document(Resource.of(yaml.safe_load(manifest())))
    parsed = parse(document.content, file="sample.json")
    assert document.warnings == ()
    assert parsed.problems == ()
    assert parsed.flag_set is not None
    return compile_flag_set(parsed.flag_set)


@pytest.mark.parametrize(
    ("flag", "context", "value", "reason"),
    [
        ("fibAlgo", {"email": "x@faas.com"}, "binet", "TARGETING_MATCH"),
        ("fibAlgo", {"email": "x@example.com"}, "recursive", "DEFAULT"),
        ("fibAlgo", {}, "recursive", "DEFAULT"),
        ("hexColor", {}, "0000CC", "STATIC"),
    ],
)
def test_its_flags_are_served(
    flags: CompiledFlagSet, flag: str, context: dict[str, str], value: str, reason: str
) -> None:
    found = resolve(flags, flag, FlagType.STRING, context, 0)
    assert (found.value, found.reason) == (value, reason)


@pytest.mark.parametrize("kind", list(FlagType))
def test_its_disabled_flag_is_disabled_for_every_type(flags: CompiledFlagSet, kind: FlagType) -> None:
    assert resolve(flags, "newWelcomeMessage", kind, {}, 0).reason == "DISABLED"
