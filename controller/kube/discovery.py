"""Whether a kind is installed. A 404 alone does not say so: a load balancer without an API server behind it
answers the same.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from controller.runtime.reconciling.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.kube.requests import Requests


async def is_installed(server: Requests, api_version: str, plural: str) -> bool:
    """Ask the API server's own list of kinds. Raises Failed where what answers is no API server."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    found = await server.once("GET", root, {}, None)
    if found.status == HTTPStatus.OK and found.body.get("kind") == "APIResourceList":
        return any(each.get("name") == plural for each in _objects(found.body.get("resources")))
    groups = await server.once("GET", "/apis", {}, None)
    if groups.status == HTTPStatus.OK and groups.body.get("kind") == "APIGroupList":
        return any(
            version.get("groupVersion") == api_version
            for group in _objects(groups.body.get("groups"))
            for version in _objects(group.get("versions"))
        )
    raise Failed("ApiServerFailed", f"{plural}: 404, and the API server does not say which kinds it has")


def _objects(found: Any) -> Iterator[dict[str, Any]]:
    return (each for each in (found if isinstance(found, list) else ()) if isinstance(each, dict))
