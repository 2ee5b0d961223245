"""The schemas for editors: against flagd's own, the parser's examples, and manifests."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs
import pytest
import yaml

from controller.cli import main
from controller.cli.json_schemas import json_schemas
from evaluator.flags.layer import read_layer

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[4]
FLAGD: Final = Path(os.environ.get("FLAGD_SCHEMAS", ROOT.parent / "shared/conformance/flagd-schemas"))
VALIDATORS: Final = {name: jsonschema_rs.validator_for(schema) for name, schema in json_schemas().items()}
MODELINE: Final = re.compile(r"^# yaml-language-server: \$schema=(\S+)$", re.MULTILINE)
EXAMPLES: Final = sorted(
    file
    for file in ROOT.glob("examples/**/*.yaml")
    if {"ci", "policies"}.isdisjoint(file.relative_to(ROOT).parts)
)
LISTS: Final = "with-array-flags.json"
"""Refused by the schema of providers alone; the daemon's accepts it, as we do."""
IN_LAYERS: Final = {
    "malformed-flag.json",
    "missing-variants.json",
    "empty-variants.json",
    "mixed-variant-types.ffconfig.json",
}
"""Refused as a whole set, and accepted as a layer."""

with_flagd: Final = pytest.mark.skipif(
    not FLAGD.is_dir(), reason="flagd's schemas are not here; set FLAGD_SCHEMAS"
)


def documents(file: Path) -> Iterator[Any]:
    """The documents of a file, by YAML 1.2, as editors read them."""
    for document in read_layer([(file.name, file.read_bytes())]).documents:
        yield document.value


def flagd_files(pattern: str) -> list[Any]:
    files = sorted(FLAGD.glob(pattern))
    return [pytest.param(file, id="/".join(file.parts[-3:])) for file in files]


@with_flagd
@pytest.mark.parametrize("file", flagd_files("test/fl*/*/*.json"))
def test_definitions_are_judged_as_by_flagds_schema(file: Path) -> None:
    good = "positive" in file.parts or file.name == LISTS
    document = json.loads(file.read_text())
    assert VALIDATORS["definitions"].is_valid(document) is good
    assert VALIDATORS["layer"].is_valid(document) is (good or file.name in IN_LAYERS)


@with_flagd
@pytest.mark.parametrize("file", flagd_files("test/targeting/*/*.json"))
def test_rules_are_judged_as_by_flagds_schema(file: Path) -> None:
    flag = {"state": "ENABLED", "variants": {"on": True}, "targeting": json.loads(file.read_text())}
    good = "positive" in file.parts
    assert VALIDATORS["definitions"].is_valid({"flags": {"f": flag}}) is good


@pytest.mark.parametrize(
    "layer", ["flags: {f: {defaultVariant: null}}", "flags: {f: null}", "metadata: {a: null}"]
)
def test_layer_may_lack_fields_and_remove_what_is_below(layer: str) -> None:
    document = yaml.safe_load(layer)
    assert VALIDATORS["layer"].is_valid(document)
    assert not VALIDATORS["definitions"].is_valid(document)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_example_names_a_schema_that_accepts_it(file: Path) -> None:
    named = MODELINE.search(file.read_text())
    assert named is not None
    schema = (file.parent / named[1]).resolve()
    assert schema.parent == ROOT / "schemas"
    read = documents(file) if schema.stem in ("layer", "flagtest") else yaml.safe_load_all(file.read_text())
    for document in read:
        VALIDATORS[schema.stem].validate(document)


@pytest.mark.parametrize(
    ("change", "accepted"),
    [
        ({}, True),
        ({"spec": {"interval": "1m", "git": {"url": "https://a.example/b", "rev": "main"}}}, False),
        ({"spec": {"interval": "often", "git": {"url": "https://a.example/b"}}}, False),
        ({"apiVersion": "flagstaff.dev/v1"}, False),
        ({"kind": "Deployment", "spec": {"anything": 1}}, True),
    ],
)
def test_manifest_is_judged_by_its_kind(change: dict[str, Any], accepted: bool) -> None:
    manifest = {
        "apiVersion": "flagstaff.dev/v1beta1", "kind": "FlagSource", "metadata": {"name": "flags"},
        "spec": {"interval": "1m", "git": {"url": "https://a.example/b"}},
    }  # fmt: skip
    assert VALIDATORS["kinds"].is_valid({**manifest, **change}) is accepted


def test_schema_is_printed_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert "flagset" in capsys.readouterr().out.splitlines()
    assert main(["schema", "FlagSet"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "FlagSet"
    assert main(["schema", "flgset"]) == 2
    assert "there is no schema 'flgset'; did you mean 'flagset'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("named", "valid"),
    [
        ({"file": "beta.segment.csv", "column": "id"}, True),
        ({"file": "beta.segment.txt"}, True),
        ({"file": "../beta.segment.txt"}, False),
        ({"file": "beta.csv", "column": "id"}, False),
        ({"file": "beta.segment.csv", "columns": "id"}, False),
        ({"column": "id"}, False),
    ],
)
@pytest.mark.parametrize("schema", ["definitions", "layer"])
def test_a_list_in_a_file_is_named_as_the_build_takes_it(schema: str, named: Any, valid: bool) -> None:
    shared = {"beta": {"in": [{"var": "targetingKey"}, named]}}
    assert VALIDATORS[schema].is_valid({"flags": {}, "$evaluators": shared}) is valid
