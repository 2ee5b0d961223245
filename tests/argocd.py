"""Argo CD's side of deploy/argocd: the patch of its ConfigMap, and the Lua that it runs, as it runs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from lupa.lua51 import LuaRuntime, lua_type

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER: Final = Path(__file__).parents[1] / "deploy" / "argocd"
PATCH: Final = FOLDER / "argocd-cm.yaml"
ACTIONS: Final = (
    "suspend", "resume", "reconcile", "approve", "promote", "abort", "retry", "pause",
)  # fmt: skip
KINDS: Final = {
    "flagstaff.dev": (
        "EvaluatorUpgrade", "FlagAlert", "FlagOverride", "FlagProvider", "FlagReceiver", "FlagRollout",
        "FlagSet", "FlagSource",
    ),
    "core.openfeature.dev": (
        "FeatureFlag", "FeatureFlagConfiguration", "FeatureFlagSource", "Flagd", "InProcessConfiguration",
    ),
}  # fmt: skip
"""The kinds whose status has conditions."""
_HEAD: Final = """# A patch of Argo CD's ConfigMap, written from the scripts beside it:
#   kubectl -n argocd patch configmap argocd-cm --patch-file deploy/argocd/argocd-cm.yaml
"""


def run(script: str, resource: Mapping[str, Any]) -> Any:
    """What a script returns for a resource. Like Argo CD, it has base, table, package and part of os."""
    lua = LuaRuntime(unpack_returned_tuples=True)
    lua.execute("string = nil; io = nil; debug = nil")
    lua.globals().obj = lua.table_from(dict(resource), recursive=True)
    return _plain(lua.execute((FOLDER / script).read_text()))


def _plain(value: Any) -> Any:
    if lua_type(value) != "table":
        return value
    entries = {key: _plain(part) for key, part in value.items()}
    return list(entries.values()) if entries and all(isinstance(key, int) for key in entries) else entries


def patch() -> str:
    """The patch of argocd-cm, as YAML."""
    health = (FOLDER / "health.lua").read_text()
    actions = {
        "mergeBuiltinActions": True,
        "discovery.lua": (FOLDER / "actions" / "discovery.lua").read_text(),
        "definitions": [
            {"name": name, "action.lua": (FOLDER / "actions" / f"{name}.lua").read_text()} for name in ACTIONS
        ],
    }
    described = yaml.dump(actions, Dumper=_Dumper, sort_keys=False, width=200)
    data = {}
    for group, kinds in KINDS.items():
        for kind in kinds:
            data[f"resource.customizations.health.{group}_{kind}"] = health
            data[f"resource.customizations.actions.{group}_{kind}"] = described
    return _HEAD + yaml.dump({"data": data}, Dumper=_Dumper, sort_keys=False, width=200)


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _block)


def status_of(resource: Mapping[str, Any]) -> str:
    """`Current`, `InProgress`, `Failed` or `Terminating`, by kstatus's rules for kinds that it does not know
    (https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus).
    """
    meta, status = resource["metadata"], resource.get("status", {})
    if "deletionTimestamp" in meta:
        return "Terminating"
    if status.get("observedGeneration", meta.get("generation")) != meta.get("generation"):
        return "InProgress"
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions", ())}
    if conditions.get("Stalled") == "True":
        return "Failed"
    if conditions.get("Reconciling") == "True" or conditions.get("Ready", "True") != "True":
        return "InProgress"
    return "Current"
