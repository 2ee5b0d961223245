"""The kinds of our groups, and the schema of each as its CustomResourceDefinition has it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

import controller
from controller.api.kinds import WATCHED
from controller.api.objects.meta import GROUP, OPENFEATURE_GROUP
from controller.validation.structural_schema import WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.kinds import ResourceType

GROUPS: Final = (GROUP, OPENFEATURE_GROUP)
KINDS: Final = {kind.kind: kind for kind in WATCHED if kind.group in GROUPS}

_PACKAGE: Final = Path(controller.__file__).parent
_PART: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME: Final[Mapping[str, Any]] = {
    "pattern": rf"^{_PART}(\.{_PART})*$",
    "maxLength": 253,
    WORDS: "a name of lower-case letters, digits, - and . that begins and ends with a letter or digit",
}
_NAMESPACE: Final[Mapping[str, Any]] = {
    "pattern": f"^{_PART}$",
    "maxLength": 63,
    WORDS: "a name of lower-case letters, digits and - that begins and ends with a letter or digit",
}
_LABEL: Final[Mapping[str, Any]] = {
    "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
    "maxLength": 63,
    WORDS: "letters, digits, - _ and ., with a letter or digit at both ends",
}
KEY: Final = rf"^({_PART}(\.{_PART})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$"
"""The key of a label or annotation: `prefix/name`, where the prefix may be missing."""
_TEXT: Final = {"type": "string"}
_ANYTHING: Final = {"x-kubernetes-preserve-unknown-fields": True}
METADATA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, **_NAME},
        "generateName": _TEXT,
        "namespace": {"type": "string", **_NAMESPACE},
        "labels": {"type": "object", "additionalProperties": {"type": "string", **_LABEL}},
        "annotations": {"type": "object", "additionalProperties": _TEXT},
        "finalizers": {"type": "array", "items": _TEXT},
        "ownerReferences": {"type": "array", "items": {"type": "object", **_ANYTHING}},
        "creationTimestamp": {"type": "string", "nullable": True},
        "deletionTimestamp": {"type": "string", "nullable": True},
        "deletionGracePeriodSeconds": {"type": "integer", "nullable": True},
        "generation": {"type": "integer"},
        "managedFields": {"type": "array", "items": {"type": "object", **_ANYTHING}},
        "resourceVersion": _TEXT,
        "selfLink": _TEXT,
        "uid": _TEXT,
    },
}
"""What Kubernetes takes of each object's metadata; no CustomResourceDefinition repeats it."""


@lru_cache(maxsize=64)
def schemas(kind: ResourceType) -> Mapping[str, Mapping[str, Any]]:
    """Return the schema of an object of `kind` by version. Raises OSError where the files are missing."""
    folder = _PACKAGE / "crds"
    if not folder.is_dir():
        # In a checkout they are beside the package.
        folder = _PACKAGE.parent / "crds"
    definition = yaml.load((folder / f"{kind.plural}.yaml").read_bytes(), yaml.CSafeLoader)
    return {
        version["name"]: _whole(version["schema"]["openAPIV3Schema"])
        for version in definition["spec"]["versions"]
    }


def _whole(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    required = ["metadata", *schema.get("required", ())]
    return {**schema, "required": required, "properties": {**schema["properties"], "metadata": METADATA}}
