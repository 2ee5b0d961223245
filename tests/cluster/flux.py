"""Flux's kinds of sources, as far as we read and write them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cluster.objects import Namespace

FLUX = {
    "GitRepository": "gitrepositories",
    "OCIRepository": "ocirepositories",
    "Bucket": "buckets",
    "ExternalArtifact": "externalartifacts",
}


def definition(kind: str) -> dict[str, Any]:
    """As much of Flux's definition as `status.artifact` needs."""
    names = {"kind": kind, "listKind": f"{kind}List", "plural": FLUX[kind], "singular": kind.lower()}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{FLUX[kind]}.source.toolkit.fluxcd.io"},
        "spec": {
            "group": "source.toolkit.fluxcd.io",
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }


def install(space: Namespace, kind: str) -> None:
    """Have the API server know `kind`."""
    installed = definition(kind)
    space.kubectl("apply", "--server-side", "-f", "-", given=json.dumps(installed))
    space.kubectl("wait", "--for=condition=Established", f"crd/{installed['metadata']['name']}")
