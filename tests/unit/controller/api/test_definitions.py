from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import pytest
import yaml
from pydantic import Field

from controller.api.fields import (
    Duration,
    InvalidSpecError,
    LocalReference,
    Model,
    RuledModel,
    SpecRule,
    in_schema,
    read,
)
from controller.api.kinds import KINDS
from controller.api.manifests_writer import (
    custom_resource_definition,
    page_of,
    render_definition,
    structural_schema,
    with_fields,
    written_manifests,
)
from controller.cli.manifests import judge, read_manifests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.kind import Kind

ROOT: Final = Path(__file__).parents[4]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_the_files_are_what_the_models_say(kind: Kind) -> None:
    """`make crds` writes them."""
    assert (ROOT / "crds" / f"{kind.plural}.yaml").read_text(encoding="utf-8") == render_definition(kind)


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if page_of(kind).exists()], ids=lambda kind: kind.plural
)
def test_the_tables_of_fields_are_what_the_models_say(kind: Kind) -> None:
    """`make crds` writes them."""
    page = page_of(kind).read_text(encoding="utf-8")
    assert page == with_fields(page, kind)


def test_the_manifests_name_the_kinds_as_the_records_do() -> None:
    """`make crds` writes them."""
    written = written_manifests()
    assert {path: path.read_text(encoding="utf-8") for path in written} == written


def test_no_definition_is_left_of_a_kind_that_is_gone() -> None:
    files = {path.stem for path in (ROOT / "crds").iterdir()}
    assert files == {kind.plural for kind in KINDS}


def undescribed_fields(part: Any, path: str = "") -> Iterator[str]:
    for name, inner in (part.get("properties") or {}).items():
        if path or name in {"spec", "status"}:
            if not inner.get("description"):
                yield f"{path}.{name}"
            yield from undescribed_fields(inner, f"{path}.{name}")
    for within in ("items", "additionalProperties"):
        if isinstance(part.get(within), dict):
            yield from undescribed_fields(part[within], path)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_each_field_is_documented(kind: Kind) -> None:
    for version in custom_resource_definition(kind)["spec"]["versions"]:
        assert list(undescribed_fields(version["schema"]["openAPIV3Schema"])) == []


class Part(RuledModel):
    """A part."""

    RULES: ClassVar[tuple[SpecRule, ...]] = (
        SpecRule(
            "has(self.one) != has(self.two)",
            "one or two",
            lambda part: (part.one is None) != (part.two is None),
        ),
    )

    one: Annotated[str, Field(max_length=5), SpecRule("self != 'a'", "must not be a", "a".__ne__)] | None = (
        None
    )
    """The first,
    with [a page](../x.md#y).
    """
    two: LocalReference | None = None
    """The second."""


class Whole(Model):
    """All."""

    wait: Duration = 300.0
    """How long."""
    mode: Literal["A", "B"] = "A"
    """Which."""
    kept: Annotated[Literal["A"], in_schema(x_default=None)] = "A"
    """Not filled in."""
    parts: Annotated[tuple[Part, ...], Field(max_length=2)] = ()
    """Parts."""
    anything: dict[str, Any] | None = None
    """What nobody judges."""
    texts: dict[Annotated[str, Field(pattern="^a")], str] = Field(default_factory=dict)
    """By name."""
    for_: Annotated[int, Field(alias="for", ge=1)]
    """A number."""


def test_a_model_is_published_with_its_documentation_bounds_defaults_and_rules() -> None:
    open_ = "x-kubernetes-preserve-unknown-fields"
    rules = "x-kubernetes-validations"
    pattern = "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"
    name = {
        "description": "The object's name.",
        "type": "string",
        "maxLength": 253,
        "minLength": 1,
        "pattern": pattern,
    }
    assert structural_schema(Whole, "All.", asked=True) == {
        "description": "All.",
        "type": "object",
        "required": ["for"],
        "properties": {
            "wait": {
                "description": "How long.", "type": "string", "default": "5m",
                "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$",
            },
            "mode": {"description": "Which.", "type": "string", "default": "A", "enum": ["A", "B"]},
            "kept": {"description": "Not filled in.", "type": "string", "enum": ["A"]},
            "parts": {
                "description": "Parts.",
                "type": "array",
                "maxItems": 2,
                "items": {
                    "type": "object",
                    rules: [{"rule": "has(self.one) != has(self.two)", "message": "one or two"}],
                    "properties": {
                        "one": {
                            "description": "The first, with [a page](../x.md#y).",
                            "type": "string",
                            "maxLength": 5,
                            rules: [{"rule": "self != 'a'", "message": "must not be a"}],
                        },
                        "two": {
                            "description": "The second.", "type": "object", "required": ["name"],
                            "properties": {"name": name},
                        },
                    },
                },
            },
            "anything": {"description": "What nobody judges.", "type": "object", open_: True},
            "texts": {
                "description": "By name.", "type": "object", "additionalProperties": {"type": "string"},
            },
            "for": {"description": "A number.", "type": "integer", "minimum": 1},
        },
    }  # fmt: skip


def test_a_status_has_neither_defaults_nor_rules() -> None:
    published = str(structural_schema(Whole, "", asked=False))
    assert "default" not in published
    assert "validations" not in published


@pytest.mark.parametrize(
    ("part", "message"),
    [({}, "one or two"), ({"one": "a"}, "must not be a"), ({"one": "toolong"}, "at most 5")],
)
def test_who_reads_a_spec_keeps_to_its_rules(part: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSpecError, match=message):
        read(Whole, {"for": 1, "parts": [part]})


BLOCK: Final = re.compile(r"^( *)```yaml\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
PAGES: Final = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "apiVersion" in path.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_the_pages_ask_to_apply_is_valid(page: Path, tmp_path: Path) -> None:
    blocks = [dedent(block) for _, block in BLOCK.findall(page.read_text(encoding="utf-8"))]
    for number, block in enumerate(block for block in blocks if "apiVersion" in block):
        (tmp_path / f"{number}.yaml").write_text(block)
    assert [str(problem) for problem in judge(read_manifests([str(tmp_path)])).problems] == []


def test_the_examples_are_valid() -> None:
    verdict = judge(read_manifests([str(ROOT / "examples")]))
    assert (verdict.problems, verdict.valid > 20) == ([], True)


def filled_in(part: Any) -> bool:
    """Whether a schema has a default somewhere."""
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return (isinstance(part, dict) and "default" in part) or any(filled_in(each) for each in inner)


@pytest.mark.parametrize("plural", ["featureflagsources", "inprocessconfigurations"])
def test_the_api_server_fills_in_nothing_that_is_merged(plural: str) -> None:
    """OpenFeature Operator's definitions fill in ports and more, so that each later object of a pod reset
    what an earlier one said.
    """
    (version,) = yaml.safe_load((ROOT / "crds" / f"{plural}.yaml").read_text())["spec"]["versions"]
    assert not filled_in(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
