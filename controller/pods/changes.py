"""What is changed of a pod or a workload, as a JSON patch (RFC 6902). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Path: TypeAlias = tuple[str | int, ...]


class ObjectPatch:
    """Changes of one object, which itself stays as it is."""

    def __init__(self, before: Mapping[str, Any]) -> None:
        self.after: dict[str, Any] = dict(before)
        """Shares with `before` what is not changed: do not change it but by these methods."""
        self.patch: list[dict[str, Any]] = []
        self.warnings: tuple[str, ...] = ()
        """Warnings for the user who applies the object."""
        self._own = {id(self.after)}
        """Parts of `after` that `before` does not have."""

    def set(self, path: Path, value: Any) -> None:
        """Set a field of a mapping that is there."""
        self._own_part(path[:-1])[path[-1]] = value
        self._add(path, value)

    def merge(self, path: Path, entries: Mapping[str, Any]) -> None:
        """Set those entries of a mapping that differ; mappings that are missing on the way are made."""
        part: Any = self.after
        for length, step in enumerate(path, 1):
            if not isinstance(part.get(step), dict):
                self.set(path[:length], {})
                part = self._own_part(path[: length - 1])
            part = part[step]
        for name, value in entries.items():
            if name not in part or part[name] != value:
                self.set((*path, name), value)

    def remove(self, path: Path) -> None:
        """Remove a field that is there from a mapping."""
        del self._own_part(path[:-1])[path[-1]]
        self.patch.append({"op": "remove", "path": _pointer(path)})

    def extend(self, path: Path, values: Sequence[Any], *, first: bool = False) -> None:
        """Put `values` at the end of a list, or each at its beginning; a list is made where there is none."""
        if not values:
            return
        if not self._own_part(path[:-1]).get(path[-1]):
            # The patch keeps a list of its own: what is added here later is another addition.
            self.set(path, [*values])
            self._own_part(path)
            return
        part = self._own_part(path)
        for value in values:
            part.insert(0 if first else len(part), value)
            self._add((*path, 0 if first else "-"), value)

    def _add(self, path: Path, value: Any) -> None:
        self.patch.append({"op": "add", "path": _pointer(path), "value": value})

    def _own_part(self, path: Path) -> Any:
        """The part of `after` at `path`, copied on the way as far as `before` has it, too."""
        part: Any = self.after
        for step in path:
            below = part[step]
            if id(below) not in self._own:
                below = part[step] = list(below) if isinstance(below, list) else dict(below)
                self._own.add(id(below))
            part = below
        return part


def _pointer(path: Path) -> str:
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)
