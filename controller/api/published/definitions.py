"""CustomResourceDefinitions, written from the models: `python -m controller.api.published.definitions`."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from controller.api.kinds import DEFINITIONS
from controller.api.objects.schema_words import RULES
from controller.api.published.field_tables import with_fields
from controller.api.published.model_schema import structural_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.objects.definition import Column, Definition

ROOT: Final = Path(__file__).parents[3]
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_UNOBSERVED: Final = {"observedGeneration": -1}
_STATUS: Final = "What became of it; written by the controller alone."


def custom_resource_definition(kind: Definition) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind."""
    group, _, newest = kind.api_version.partition("/")
    singular = kind.kind.lower()
    names = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": singular,
        "shortNames": [kind.short_name],
        **({"categories": ["flagstaff"]} if kind.is_for_users else {}),
    }
    versions = [
        _version(kind, newest, {}),
        *(_version(kind, name, more) for name, more in kind.older.items()),
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{group}",
            "annotations": {"kustomize.toolkit.fluxcd.io/substitute": "disabled"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            **({"conversion": {"strategy": "None"}} if kind.older else {}),
            "versions": versions,
        },
    }


def _version(kind: Definition, name: str, otherwise: Mapping[str, Any]) -> dict[str, Any]:
    spec = {**structural_schema(kind.spec, kind.spec_description, asked=True), **otherwise}
    properties: dict[str, Any] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": {key: value for key, value in spec.items() if value is not None},
    }
    if kind.status is not None:
        status = structural_schema(kind.status, _STATUS, asked=False)
        starts = {"default": dict(_UNOBSERVED)} if "observedGeneration" in status["properties"] else {}
        properties["status"] = {**status, **starts}
    schema = {
        "description": kind.description,
        "type": "object",
        **({"required": ["spec"]} if kind.needs_spec and not otherwise else {}),
        **({RULES: [rule.schema for rule in kind.rules]} if kind.rules else {}),
        "properties": _without_links(properties),
    }
    return {
        "name": name,
        "served": True,
        "storage": not otherwise,
        # A receipt is written whole, by its proxy.
        **({"subresources": {"status": {}}} if "default" in properties.get("status", {}) else {}),
        "additionalPrinterColumns": [_column(column) for column in kind.columns],
        "schema": {"openAPIV3Schema": schema},
    }


def _column(column: Column) -> dict[str, Any]:
    priority = {"priority": column.priority} if column.priority else {}
    return {"name": column.name, "type": column.type, **priority, "jsonPath": column.path}


def render_definition(kind: Definition) -> str:
    """Return the file of a kind's definition."""
    module = sys.modules[kind.spec.__module__].__name__.replace(".", "/")
    body = yaml.safe_dump(
        custom_resource_definition(kind),
        sort_keys=False,
        width=110,
        allow_unicode=True,
        default_flow_style=False,
    )
    lines = [f"Written by `make crds` from {module}.py.", *textwrap.wrap(kind.note, 100)]
    return "".join(f"# {line}\n" for line in lines) + body


def _without_links(part: Any) -> Any:
    """Return a schema whose descriptions have no links: those are for the pages."""
    if isinstance(part, list):
        return [_without_links(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {
        name: _LINK.sub(r"\1", value)
        if name == "description" and isinstance(value, str)
        else _without_links(value)
        for name, value in part.items()
    }


def page_of(kind: Definition) -> Path:
    """Return the path of the page about a kind; not each has one."""
    return ROOT / "docs" / "kinds" / f"{kind.kind.lower()}.md"


def main() -> None:
    """Write each file and each table anew."""
    for kind in DEFINITIONS:
        (ROOT / "crds" / f"{kind.plural}.yaml").write_text(render_definition(kind), encoding="utf-8")
        page = page_of(kind)
        if page.exists():
            page.write_text(with_fields(page.read_text(encoding="utf-8"), kind), encoding="utf-8")


if __name__ == "__main__":
    main()
