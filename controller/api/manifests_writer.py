"""What is published of the kinds, written from their records: definitions, the rules of roles and webhooks,
quotas and tables of fields.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from pydantic import TypeAdapter
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema

from controller.api.fields import OPEN, RULES, Model, RuledModel
from controller.api.kind import ADMISSION, CONTROLLER, DELIVERY, PAGE, PROXY
from controller.api.kinds import KINDS
from controller.api.records import FLUX_SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import core_schema

    from controller.api.kind import Kind, PrinterColumn


_FIRST: Final = ("description", "type", "required", "default", "enum")
"""Keys in the order in which people read them; properties come last."""


def structural_schema(model: type[Model], description: str, *, asked: bool) -> dict[str, Any]:
    """Return the schema of a spec, which has the defaults and rules of the model, or of a status."""
    whole = TypeAdapter(model).json_schema(by_alias=True, schema_generator=_Documented)
    schema = _translate(whole, whole.get("$defs", {}), asked=asked)
    return {"description": description, **{key: part for key, part in schema.items() if key != "description"}}


class _Documented(GenerateJsonSchema):
    """pydantic's generator, with the docstring below each field and the rules of each model."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        model = schema["cls"]
        described = self._add_description(model, super().model_schema(schema))
        if issubclass(model, RuledModel) and model.RULES:
            described[RULES] = [rule.schema for rule in model.RULES]
        return described

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return self._add_description(schema["cls"], super().dataclass_schema(schema))

    @staticmethod
    def _add_description(documented: type[Any], schema: JsonSchemaValue) -> JsonSchemaValue:
        schema.pop("description", None)
        fields = getattr(documented, "model_fields", {})
        for name, text in documentation(documented).items():
            alias = (name in fields and fields[name].alias) or to_camel(name)
            if alias in schema.get("properties", {}):
                schema["properties"][alias]["description"] = text
        return schema


def documentation(cls: type[Any]) -> dict[str, str]:
    """Return the docstring below each field of a class, its bases' among them, on one line."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] not in {"builtins", "pydantic", "typing"}:
            texts |= _documented_fields(base.__module__).get(base.__name__, {})
    return texts


@lru_cache(maxsize=64)
def _documented_fields(module: str) -> dict[str, dict[str, str]]:
    source = inspect.getsource(__import__(module, fromlist=["_"]))
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    return {
        node.name: {
            field.target.id: " ".join(text.value.value.split())
            for field, text in zip(node.body, node.body[1:], strict=False)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }
        for node in classes
    }


def _translate(part: dict[str, Any], defs: dict[str, Any], *, asked: bool) -> dict[str, Any]:
    part = _without_references(part, defs)
    schema = {
        key: part[key] for key in part if key not in {"title", "$defs", "properties", "default", "const"}
    }
    if "const" in part:
        schema["enum"] = [part["const"]]
    default = schema.pop("x-default", None if "properties" in part else part.get("default"))
    if default not in (None, [], "") and asked:
        schema["default"] = _default_as_written(default, schema)
    if not asked:
        schema.pop(RULES, None)
    # Kubernetes has no word for what a key must be.
    schema.pop("propertyNames", None)
    named = schema.pop("patternProperties", None)
    if named is not None:
        (schema["additionalProperties"],) = named.values()
    if schema.get("additionalProperties") is True or not ({"type", OPEN} & schema.keys()):
        schema.pop("additionalProperties", None)
        schema[OPEN] = True
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            schema[inner] = _translate(schema[inner], defs, asked=asked)
    if "properties" in part:
        schema["properties"] = {
            name: _translate(field, defs, asked=asked) for name, field in part["properties"].items()
        }
    ordered = [*(key for key in _FIRST if key in schema), *(key for key in schema if key not in _FIRST)]
    last = [key for key in ("items", "additionalProperties", "properties") if key in schema]
    return {key: schema[key] for key in (*(key for key in ordered if key not in last), *last)}


def _without_references(part: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    """Return a part without references, and without the null of a field that need not be given."""
    if "$ref" in part:
        target = _without_references(defs[part["$ref"].rpartition("/")[2]], defs)
        # An enum's own words are about all of its uses.
        target = {key: text for key, text in target.items() if key != "description"}
        return {**target, **{key: value for key, value in part.items() if key != "$ref"}}
    options = [option for option in part.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        own = {key: value for key, value in part.items() if key != "anyOf"}
        return {**_without_references(options[0], defs), **own}
    return part


def _default_as_written(default: Any, schema: dict[str, Any]) -> Any:
    """Return a default as users write it: seconds as a duration."""
    if schema.get("type") != "string" or isinstance(default, str):
        return default
    minutes, seconds = divmod(default, 60)
    return f"{minutes:g}m" if minutes > 1 and not seconds else f"{default:g}s"


BEGIN: Final = "<!-- fields of the spec, written by `make crds` -->"
END: Final = "<!-- end of the fields -->"
_REFERENCE: Final = ["name"]
"""The fields of a reference to an object."""


def with_fields(page: str, kind: Kind) -> str:
    """Return a page with the table of the kind's fields. Raises ValueError where it has no place for it."""
    return _replace(page, BEGIN, END, f"\n{field_table(kind)}\n")


def _replace(text: str, begin: str, end: str, content: str) -> str:
    """Return a text with other lines between two. Raises ValueError where it has not both."""
    before, found, rest = text.partition(f"{begin}\n")
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"there is no `{begin}` followed by `{end}`")
    return f"{before}{begin}\n{content}{end}{after}"


def field_table(kind: Kind) -> str:
    """Return the table of a spec's fields in Markdown."""
    spec = structural_schema(kind.spec, "", asked=True)
    return "".join(["| field | default | meaning |\n|---|---|---|\n", *_rows(spec, "")])


def _rows(schema: Mapping[str, Any], above: str) -> Iterator[str]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        inner = field.get("items", field)
        path = f"{above}{name}{'[]' if inner is not field and 'properties' in inner else ''}"
        fields = list(inner.get("properties", {}))
        # What is below is no setting of ours.
        whole = OPEN in inner or f"{above}{name}" == "flagSpec"
        shown = f"{path}.name" if fields == _REFERENCE else path
        cells = (f"`{shown}`", _default(field, needed=name in required), _meaning(field))
        yield f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|\n"
        if not whole and fields != _REFERENCE:
            yield from _rows(inner, f"{path}.")


def _default(field: Mapping[str, Any], *, needed: bool) -> str:
    if needed:
        return "required"
    default = field.get("default")
    if default is None or default == {}:
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`[{', '.join(default)}]`" if isinstance(default, list) else f"`{default}`"


def _meaning(field: Mapping[str, Any]) -> str:
    text: str = field.get("description", "")
    values = [str(value) for value in field.get("enum", field.get("items", {}).get("enum", ()))]
    unnamed = [value for value in values if value and value not in text]
    if len(values) > 1 and unnamed:
        text += f" One of {', '.join(f'`{value}`' for value in values if value)}."
    return text.replace("|", "\\|")


ROOT: Final = Path(__file__).parents[2]
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_UNOBSERVED: Final = {"observedGeneration": -1}
_STATUS: Final = "What became of it; written by the controller alone."


def custom_resource_definition(kind: Kind) -> dict[str, Any]:
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


def _version(kind: Kind, name: str, otherwise: Mapping[str, Any]) -> dict[str, Any]:
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


def _column(column: PrinterColumn) -> dict[str, Any]:
    priority = {"priority": column.priority} if column.priority else {}
    return {"name": column.name, "type": column.type, **priority, "jsonPath": column.path}


def render_definition(kind: Kind) -> str:
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


def page_of(kind: Kind) -> Path:
    """Return the path of the page about a kind; not each has one."""
    return ROOT / "docs" / "kinds" / f"{kind.kind.lower()}.md"


DEPLOY: Final = ROOT / "deploy"
_KINDS_BEGIN: Final = "# Of our kinds, for {}; written by `make crds`:"
_KINDS_END: Final = "# End of what is written."


def role_rules(role: str, kinds: Iterable[Kind] = KINDS) -> list[dict[str, list[str]]]:
    """Return the rules of a ClusterRole about our kinds and Flux's: one for all with the same rights."""
    together: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for each in (*kinds, *FLUX_SOURCES):
        for right in each.rights:
            if right.role == role:
                resource = f"{each.plural}/{right.part}" if right.part else each.plural
                together.setdefault((each.group, right.verbs), []).append(resource)
    return [
        {"apiGroups": [group], "resources": resources, "verbs": [*verbs]}
        for (group, verbs), resources in together.items()
    ]


def webhook_rules(kinds: Iterable[Kind] = KINDS) -> list[dict[str, Any]]:
    """Return which objects the API server shows admission: those of every kind of ours."""
    plurals: dict[tuple[str, str], list[str]] = {}
    for kind in kinds:
        plurals.setdefault((kind.group, kind.version), []).append(kind.plural)
    return [
        {
            "apiGroups": [group],
            "apiVersions": [version],
            "operations": ["CREATE", "UPDATE"],
            "resources": resources,
            "scope": "Namespaced",
        }
        for (group, version), resources in plurals.items()
    ]


def quotas(kinds: Iterable[Kind] = KINDS) -> dict[str, str]:
    """Return how many objects a tenant's namespace may have of each kind that tenants write."""
    return {f"count/{kind.plural}.{kind.group}": str(kind.quota) for kind in kinds if kind.quota is not None}


_SECTIONS: Final[Mapping[str, Mapping[str, Callable[[], list[Any] | dict[str, str]]]]] = {
    "base/rbac.yaml": {role: partial(role_rules, role) for role in (CONTROLLER, DELIVERY)},
    "components/proxy/rbac.yaml": {PROXY: partial(role_rules, PROXY)},
    "components/page/rbac.yaml": {PAGE: partial(role_rules, PAGE)},
    "components/admission/admission.yaml": {
        ADMISSION: partial(role_rules, ADMISSION),
        "validate.flagstaff.dev": webhook_rules,
    },
    "namespaces/resource-quota.yaml": {"tenants": quotas},
}
"""The files of deploy/ with a section that is written, and what stands there, by whom it is for."""


def written_manifests() -> dict[Path, str]:
    """Return the files of deploy/ that name our kinds, as the records say. Raises ValueError for one that has
    lost the place for it.
    """
    files = {}
    for name, sections in _SECTIONS.items():
        text = (DEPLOY / name).read_text(encoding="utf-8")
        for whom, content in sections.items():
            begin = _KINDS_BEGIN.format(whom)
            indent = next((line for line in text.splitlines() if line.endswith(begin)), "").partition("#")[0]
            lines = textwrap.indent(_yaml(content()), indent)
            text = _replace(text, begin, f"{indent}{_KINDS_END}", lines)
        files[DEPLOY / name] = text
    return files


def _yaml(content: list[Any] | dict[str, str]) -> str:
    # Lists within rules stand on one line.
    style = None if isinstance(content, list) else False
    return yaml.safe_dump(content, sort_keys=False, width=150, default_flow_style=style)


def main() -> None:
    """Write each file and each table anew."""
    for kind in KINDS:
        (ROOT / "crds" / f"{kind.plural}.yaml").write_text(render_definition(kind), encoding="utf-8")
        page = page_of(kind)
        if page.exists():
            page.write_text(with_fields(page.read_text(encoding="utf-8"), kind), encoding="utf-8")
    for path, text in written_manifests().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
