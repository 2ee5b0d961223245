"""Flags in files: ConfigMaps that the controller writes, named as OpenFeature Operator's. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.injection import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PROVIDER: Final = "file"
MOST_KEY: Final = 253
"""Characters of a ConfigMap's key."""
_MOST: Final = 64
"""Files of one pod."""


@dataclass(frozen=True, slots=True)
class FlagFile:
    """The file of one flag set, whose ConfigMap has the flag set's name and namespace."""

    namespace: str
    name: str

    @property
    def key(self) -> str:
        """The key of the ConfigMap's entry, which is the file's name."""
        return f"{self.namespace}_{self.name}.flagd.json"

    @property
    def folder(self) -> str:
        """Where the ConfigMap is mounted."""
        return f"/etc/flagd/{self.namespace}_{self.name}"

    @property
    def source(self) -> dict[str, str]:
        """As `--sources` has it."""
        return {"uri": f"{self.folder}/{self.key}", "provider": PROVIDER}


def marks(files: Sequence[FlagFile]) -> Iterator[tuple[str, str, str]]:
    """(labels or annotations, name, value) by which the controller finds the pod."""
    if files:
        yield "labels", names.FLAG_FILES, "true"
        yield "annotations", names.FLAG_FILES, ",".join(each.name for each in files)


def marked(metadata: Mapping[str, Any]) -> tuple[FlagFile, ...]:
    """The files of a pod with this metadata, which anybody may have written."""
    given = (metadata.get("annotations") or {}).get(names.FLAG_FILES) or ""
    found = dict.fromkeys(each.strip() for each in str(given).split(","))
    return tuple(FlagFile(str(metadata.get("namespace", "")), each) for each in [*found][:_MOST] if each)
