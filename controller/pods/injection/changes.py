"""What is added to a pod, as a JSON patch (RFC 6902). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Path: TypeAlias = tuple[str | int, ...]


class Changes:
    """Additions to one object, which itself stays as it is."""

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
        pointer = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)
        self.patch.append({"op": "add", "path": pointer, "value": value})

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
