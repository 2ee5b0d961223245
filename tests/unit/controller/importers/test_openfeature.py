"""OpenFeature's own manifests, and what they have that is no flag here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.importers.reading import UnreadableFile
from controller.importers.writer import definitions
from evaluator.flags.merge import parse
from evaluator.flags.openfeature_manifest import ManifestFlag, as_file, manifest_flag
from tests.unit.controller.importers.suites import assert_never_fails, compiled, imported, suite, value_of


def test_the_manifests_of_openfeature() -> None:
    folder = suite("openfeature-cli") / "v0" / "testdata"
    positive = [json.loads(file.read_bytes()) for file in sorted((folder / "positive").glob("*.json"))]
    agree = 0
    for manifest in positive:
        what = imported("openfeature", manifest)
        assert not what.refusals
        for key, flag in manifest["flags"].items():
            assert value_of(compiled(what), key, {}) == flag["defaultValue"]
            agree += 1
    assert agree >= 5
    for file in sorted((folder / "negative").glob("*.json")):
        assert not imported("openfeature", json.loads(file.read_bytes())).flags


def flag(kind: str, default: Any, **fields: Any) -> dict[str, Any]:
    return {"flags": {"f": {"flagType": kind, "defaultValue": default, **fields}}}


@pytest.mark.parametrize(
    "manifest",
    [
        flag("boolean", False, description="why"),
        flag("string", ""),
        flag("integer", 0),
        flag("float", 1.5),
        flag("object", {"a": [1]}),
    ],
)
def test_the_imported_flags_have_the_same_manifest(manifest: dict[str, Any]) -> None:
    document = json.dumps(definitions(imported("openfeature", manifest), "")).encode()
    flags = [manifest_flag(item) for item in parse(document, file="f.json").flag_set.flags.values()]
    assert as_file(item for item in flags if isinstance(item, ManifestFlag))["flags"] == manifest["flags"]


def test_a_boolean_has_both_variants_and_others_their_default() -> None:
    assert imported("openfeature", flag("boolean", True)).flags[0].variants == {"on": True, "off": False}
    assert imported("openfeature", flag("float", 0.5)).flags[0].variants == {"default": 0.5}


@pytest.mark.parametrize(
    ("kind", "default", "message"),
    [
        ("integer", True, "a boolean"),
        ("integer", 1.5, "a number"),
        ("string", 1, "a number"),
        ("object", "x", "a text"),
        ("object", [], "a list"),
        ("boolean", None, "no defaultValue"),
        ("number", 1, "none of boolean"),
    ],
)
def test_a_default_of_another_type_is_refused(kind: str, default: Any, message: str) -> None:
    assert message in imported("openfeature", flag(kind, default)).refusals[0].message


def test_the_list_of_the_api_is_no_file() -> None:
    with pytest.raises(UnreadableFile, match="openfeature pull"):
        imported("openfeature", {"flags": [{"key": "f", "type": "boolean", "defaultValue": True}]})


def test_spoiled_files_are_refused() -> None:
    assert_never_fails("openfeature", flag("object", {"a": [1]}, description="why"))
    assert_never_fails("openfeature", flag("float", 1.5))
