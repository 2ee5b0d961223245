"""The tables of fields in docs/kinds, between two comments of each page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.api.objects.schema_words import OPEN
from controller.api.published.model_schema import structural_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controller.api.objects.definition import Definition

BEGIN: Final = "<!-- fields of the spec, written by `make crds` -->"
END: Final = "<!-- end of the fields -->"
_REFERENCE: Final = ["name"]
"""The fields of a reference to an object."""


def with_fields(page: str, kind: Definition) -> str:
    """Return a page with the table of the kind's fields. Raises ValueError where it has no place for it."""
    before, begin, rest = page.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page of {kind.kind} has no `{BEGIN}` and `{END}`")
    return f"{before}{BEGIN}\n\n{field_table(kind)}\n{END}{after}"


def field_table(kind: Definition) -> str:
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
