"""Manifests of every kind that are refused, and some that are taken with a warning."""

from __future__ import annotations

from typing import Any, Final

from controller.api.kinds import WATCHED

_VERSIONS: Final = {type_.kind: type_.api_version for type_ in WATCHED}
_FLAG: Final = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on"}
_GIT: Final = {"url": "https://git.example.com/flags.git"}
_SET: Final = {"sourceRef": {"kind": "FlagSource", "name": "flags"}}
_ALERT: Final = {"providerRef": {"name": "chat"}, "eventSources": [{"kind": "FlagSet", "name": "*"}]}
_ROLLOUT: Final = {"flagSetRef": {"name": "checkout"}, "flags": ["*"]}
_HOOK: Final = {"type": "github", "resources": [{"name": "*"}]}


def manifest(kind: str, spec: Any, name: str = "checkout") -> dict[str, Any]:
    """Return an object of one of our kinds."""
    return {"apiVersion": _VERSIONS[kind], "kind": kind, "metadata": {"name": name}, "spec": spec}


def _flags(**fields: Any) -> dict[str, Any]:
    return {"flagSpec": {"flags": {"banner": {**fields, **_FLAG, **fields}}}}


BY_SCHEMA: Final = {
    "FlagSource by schema": manifest("FlagSource", {"interval": "1m"}),
    "FlagSet by schema": manifest("FlagSet", {**_SET, "failurePolicy": "Perflag"}),
    "FlagShard by schema": manifest("FlagShard", {"digest": "", "flagSpec": {"flags": {}}}),
    "FlagGrant by schema": manifest("FlagGrant", {"from": [], "to": [{"kind": "FlagSource"}]}),
    "FlagReceiver by schema": manifest("FlagReceiver", {**_HOOK, "secretRef": {"name": "Hook"}}),
    "FlagReceipt by schema": manifest("FlagReceipt", {"configuration": "", "proxy": "a"}),
    "FlagOverride by schema": manifest(
        "FlagOverride",
        {
            "flagSetRef": {"name": "checkout"},
            "flag": "banner",
            "variant": "on",
            "reason": "",
            "expiresAt": "2026-12-01T18:00:00Z",
        },
    ),
    "FlagRollout by schema": manifest("FlagRollout", {**_ROLLOUT, "steps": [{"share": 10}, {"share": 5}]}),
    "MetricTemplate by schema": manifest(
        "MetricTemplate",
        {"provider": {"type": "http", "address": "https://metrics.example.com/"}, "query": "x"},
    ),
    "EvaluatorUpgrade by schema": manifest("EvaluatorUpgrade", {"maxConcurrent": 0}),
}
"""What the API server refuses by its CustomResourceDefinition."""
BEYOND_SCHEMA: Final = {
    "FlagSource": manifest("FlagSource", {"interval": "1m", "git": {**_GIT, "ref": {"branch": "-x"}}}),
    "FlagSet": manifest("FlagSet", {**_SET, "paths": ["/flags", "a/../b"]}),
    "FlagProvider": manifest("FlagProvider", {"type": "generic"}),
    "FlagAlert": manifest("FlagAlert", {**_ALERT, "exclusionList": ["("]}),
    "FlagRollout": manifest(
        "FlagRollout",
        {
            **_ROLLOUT,
            "steps": [{"share": 0.125}],
            "windows": [{"days": ["Mon"], "from": "08:00", "to": "16:00", "timeZone": "Berlin"}],
        },
    ),
    "MetricTemplate": manifest(
        "MetricTemplate", {"provider": {"type": "prometheus", "address": "prometheus:9090"}, "query": "x"}
    ),
    "FlagPolicy": manifest("FlagPolicy", {"action": "Deny", "validations": [{"expression": "plan.most <"}]}),
    "FeatureFlagConfiguration": manifest("FeatureFlagConfiguration", _flags(defaultVariant="onn")),
    "FeatureFlag": manifest("FeatureFlag", _flags(targeting={"bogus": []}, state="on")),
    "FeatureFlag with many faults": manifest(
        "FeatureFlag",
        {"flagSpec": {"flags": {f"f{number}": {**_FLAG, "defaultVariant": "x"} for number in range(7)}}},
    ),
    "FeatureFlagSource": manifest(
        "FeatureFlagSource", {"sources": [{"source": "flags", "provider": "gitt"}], "port": 80}
    ),
    "InProcessConfiguration": manifest("InProcessConfiguration", {"port": 99_999}),
    "Flagd": manifest("Flagd", {"replicas": -1, "featureFlagSource": "Shop"}),
}
"""What only the parsers refuse that the controller, the proxy and injection read it by."""
DOUBTFUL: Final = {
    "a flag with a remark": manifest("FeatureFlag", _flags(description="x")),
    "a rule that names no rule": manifest(
        "FeatureFlagConfiguration", _flags(targeting={"if": [{"$ref": "staff"}, "on", None]})
    ),
    "a setting that has no effect": manifest(
        "FeatureFlagSource", {"sources": [{"source": "flags"}], "rolloutOnChange": True}
    ),
}
"""What is taken with a warning."""
