"""Paths of objects on an API server. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from controller.api.kinds import PLURALS
from controller.api.parsing.names import OBJECT_NAME
from controller.runtime.reconciling.setbacks import Stalled

if TYPE_CHECKING:
    from collections.abc import Sequence


def root_of(api_version: str) -> str:
    """The path of an API version: of the list of its kinds."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def path_of(api_version: str, kind: str, namespace: str, name: str = "") -> str:
    """Return the path of an object, or of all of its kind in the namespace. Raises Stalled for a bad name."""
    if not (OBJECT_NAME.fullmatch(namespace) and (not name or OBJECT_NAME.fullmatch(name))):
        raise Stalled("InvalidSpec", f"{kind} {name[:253]!r}: not a valid object name")
    path = f"{root_of(api_version)}/namespaces/{namespace}/{PLURALS[kind]}"
    return f"{path}/{name}" if name else path


def service_account_user(namespace: str, name: str) -> str:
    """Return the user name of a service account. Raises Stalled for an invalid name."""
    if not (OBJECT_NAME.fullmatch(namespace) and OBJECT_NAME.fullmatch(name)):
        raise Stalled("InvalidSpec", f"{name[:253]!r}: no service account can have this name")
    return f"system:serviceaccount:{namespace}:{name}"


def paths_of_all(api_version: str, plural: str, namespaces: Sequence[str]) -> list[str]:
    """Return the paths of all objects of a kind, in `namespaces` or in all."""
    root = root_of(api_version)
    paths = [f"{root}/namespaces/{quote(namespace, safe='')}/{plural}" for namespace in namespaces]
    return paths or [f"{root}/{plural}"]
