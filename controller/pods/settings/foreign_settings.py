"""What a FeatureFlagSource or InProcessConfiguration of another namespace may say about a pod. Pure.

A FlagGrant lets a pod use the object; it does not let the object's author read or change the pod. So the
object names no Secret and no ConfigMap of the pod's namespace, and the application gets only variables of it
that begin with FLAGD_ and do not say where evaluation contexts are sent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from controller.api.openfeature.featureflagsource import FeatureFlagSourceSpec
from controller.api.openfeature.inprocessconfiguration import InProcessConfigurationSpec
from controller.pods.settings.installation import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

S = TypeVar("S", FeatureFlagSourceSpec, InProcessConfigurationSpec)

PREFIX: Final = "FLAGD"
_NAME: Final = re.compile(r"FLAGD_[A-Z0-9_]{1,120}", re.ASCII)
_ADDRESSES: Final = frozenset(
    f"{PREFIX}_{name}"
    for name in (
        "CERT_PATH", "DEFAULT_AUTHORITY", "HOST", "MANAGEMENT_PORT", "OFFLINE_FLAG_SOURCE_PATH", "OFREP_PORT",
        "PORT", "RESOLVER", "SERVER_CERT_PATH", "SOCKET_PATH", "SYNC_PORT", "TARGET_URI", "TLS", "URI",
    )
)  # fmt: skip
"""What providers of OpenFeature read to find their evaluator, which learns what applications say of users."""
_SOCKETS: Final = ("/var/run/", "/run/", "/tmp/")  # noqa: S108 - of the application's container


class ForeignVariable(dict[str, Any]):
    """A variable with its final name: the application's containers get it, the evaluator's does not."""


def restrict(spec: S, shown: str, namespace: str) -> S:
    """The spec as pods of `namespace` may use it; `shown` is the object's kind and name. Raises Refused."""
    for problem in _problems(spec, namespace):
        raise Refused(
            f"{shown}: {problem}, which an object of another namespace may not; write one in {namespace}"
        )
    variables = tuple(
        ForeignVariable(name=_final_name(spec, variable), value=_literal(variable))
        for variable in spec.env_vars
    )
    return spec.model_copy(update={"env_vars": variables}) if variables else spec


def _problems(spec: S, namespace: str) -> Iterator[str]:
    prefix = spec.env_var_prefix
    if prefix and not f"{prefix.strip()}_".startswith(f"{PREFIX}_"):
        yield f"envVarPrefix: {prefix[:63]!r} is another than {PREFIX}"
    for number, variable in enumerate(spec.env_vars):
        where, name = f"envVars[{number}]", _final_name(spec, variable)
        if more := sorted(variable.keys() - {"name", "value"}):
            yield f"envVars[{number}].{more[0][:63]} reads what the pod or {namespace} holds"
        if not _NAME.fullmatch(name):
            yield f"{where}: sets {name[:63]!r}, and no {PREFIX}_NAME of capital letters, digits and _"
        if name in _ADDRESSES:
            yield f"{where}: {name} says where the application sends its evaluation contexts"
    path = spec.socket_path or ""
    if path and (not path.startswith(_SOCKETS) or "/../" in path):
        yield f"socketPath: {path[:100]!r} is outside of {', '.join(_SOCKETS)}"
    if isinstance(spec, FeatureFlagSourceSpec):
        for number, source in enumerate(spec.sources):
            if source.secret_ref:
                yield f"sources[{number}].secretRef names a Secret of {namespace}"


def _final_name(spec: S, variable: Mapping[str, Any]) -> str:
    prefix = (spec.env_var_prefix or PREFIX).strip()
    return f"{prefix}_{variable.get('name')}"


def _literal(variable: Mapping[str, Any]) -> str:
    """The value, in which the kubelet expands no `$(NAME)` of the pod's own variables."""
    value = variable.get("value")
    return "" if value is None else str(value).replace("$", "$$")
