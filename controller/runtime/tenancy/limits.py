"""The limits of each namespace, from the options and, over them, a ConfigMap. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import yaml
from pydantic import ConfigDict, Field

from controller.api.objects.fields import Model, read

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Limit = Annotated[int, Field(strict=True, ge=0)]
"""0: no limit."""


class NamespaceLimits(Model):
    """The limits of one namespace. A limit that the ConfigMap leaves out is that of the options."""

    model_config = ConfigDict(extra="forbid")

    sources: Limit = 0
    """FlagSources."""
    flag_sets: Limit = 0
    artifact_bytes: Limit = 0
    """Bytes of all artifacts together."""
    mirror_bytes: Limit = 0
    """Bytes of all mirrors of Git repositories together."""
    git_processes: Limit = 0
    """Git programs that run at the same time."""
    flags: Limit = 0
    """Flags of all FlagSets together."""
    streams: Limit = 0
    """Open streams of its callers at one proxy."""
    receipts: Limit = 0
    """Receipts of its pods that one proxy keeps: one for each flag set that a pod serves."""


class Limits:
    """The limits of all namespaces."""

    def __init__(
        self, defaults: NamespaceLimits, changed: Callable[[str], None] = lambda _namespace: None
    ) -> None:
        """`changed` is called with each namespace that gets others."""
        self.changed = changed
        self._defaults = defaults
        self._own: dict[str, NamespaceLimits] = {}

    def of(self, namespace: str) -> NamespaceLimits:
        """Return the current limits of a namespace."""
        return self._own.get(namespace, self._defaults)

    def replace(self, data: Mapping[str, str]) -> tuple[str, ...]:
        """Replace the limits by those of a ConfigMap: YAML by namespace. Returns its errors; a namespace with
        an invalid text keeps its limits.
        """
        before, found, problems = self._own, dict[str, NamespaceLimits](), []
        for namespace, text in sorted(data.items()):
            try:
                found[namespace] = self._read(namespace, text)
            except ValueError as error:
                problems.append(str(error))
                if namespace in before:
                    found[namespace] = before[namespace]
        self._own = found
        for namespace in sorted(before.keys() | found.keys()):
            if before.get(namespace) != found.get(namespace):
                self.changed(namespace)
        return tuple(problems)

    def _read(self, namespace: str, text: str) -> NamespaceLimits:
        """Raise ValueError, whose text names the namespace."""
        try:
            content: Any = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise ValueError(f"{namespace}: is not YAML: {' '.join(str(error).split())[:200]}") from error
        if not isinstance(content, dict):
            raise ValueError(f"{namespace}: must have a limit on each line, such as 'sources: 10'")  # noqa: TRY004 - as any other text that is wrong
        given = read(NamespaceLimits, content, where=namespace)
        return self._defaults.model_copy(
            update={name: getattr(given, name) for name in given.model_fields_set}
        )


UNLIMITED: Final = Limits(NamespaceLimits())
