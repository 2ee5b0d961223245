"""Manifests of files and folders, with the line of each field."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from controller.cli.shared.ending import USAGE, Exit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from controller.migration.finding import Path as FieldPath

_ENDINGS: Final = frozenset({".yaml", ".yml", ".json"})


@dataclass(frozen=True, slots=True)
class ObjectManifest:
    """One object, and where it stands."""

    body: Any
    file: str
    """Empty: it is a live one."""
    node: Any
    """PyYAML's."""

    @property
    def is_object(self) -> bool:
        """Whether the API server could hold it: a patch or a Kustomization beside manifests has no name."""
        meta = self.body.get("metadata") if isinstance(self.body, dict) else None
        return isinstance(meta, dict) and {"apiVersion", "kind"} <= self.body.keys() and "name" in meta

    def line(self, path: FieldPath) -> int | None:
        """The line of the field, or of the nearest around it; None for a live object."""
        return self.place(path)[0] or None

    def place(self, path: FieldPath) -> tuple[int, int]:
        """(line, column) of the field, or of the nearest around it; 0 for a live object."""
        node = nearest = self.node
        for step in path:
            key, node = _below(node, step)
            if node is None:
                break
            nearest = key or node
        return (0, 0) if nearest is None else (nearest.start_mark.line + 1, nearest.start_mark.column + 1)


def _below(node: Any, step: str | int) -> tuple[Any, Any]:
    """(the key, the value) of a field."""
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == step), (None, None))
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return None, node.value[step]
    return None, None


@contextlib.contextmanager
def reading(file: object) -> Iterator[None]:
    """Raises Exit where the block cannot read a file, or the file is no YAML."""
    try:
        yield
    except OSError as error:
        raise Exit(f"{file}: {error.strerror}", USAGE) from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise Exit(f"{file}: not YAML: {' '.join(str(error).split())}", USAGE) from None


def read_manifests(paths: Sequence[str]) -> list[ObjectManifest]:
    """The objects in these files, and in folders' YAML and JSON files; Lists taken apart. Raises Exit."""
    found: list[ObjectManifest] = []
    for path in paths:
        place = Path(path)
        files = (
            sorted(each for each in place.rglob("*") if each.suffix in _ENDINGS and each.is_file())
            if place.is_dir()
            else [place]
        )
        for file in files:
            with reading(file):
                found += _documents(file)
    return found


def _documents(file: Path) -> Iterator[ObjectManifest]:
    loader = yaml.SafeLoader(file.read_bytes())
    try:
        while loader.check_node():
            node = loader.get_node()
            body = loader.construct_document(node)
            items = _below(node, "items")[1]
            if isinstance(body, dict) and body.get("kind") == "List" and isinstance(items, yaml.SequenceNode):
                for each, its in zip(body["items"], items.value, strict=True):
                    yield ObjectManifest(each, str(file), its)
            elif body is not None:
                yield ObjectManifest(body, str(file), node)
    finally:
        loader.dispose()
