"""Tokens of what is followed: Secrets of the pod's namespace, mounted into the evaluator's container, which
reads them again at every request. No token stands in a pod's arguments. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.injection import names
from controller.injection.options import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.featureflagsource import FeatureFlagSourceSpec, SourceSpec

PROVIDERS: Final = frozenset({"http", "grpc"})
"""Those that send one."""
KEY: Final = "token"
"""Of the Secret."""


def file(number: int) -> str:
    """Where the evaluator finds the token of the source of this number."""
    return f"{_folder(number)}/{KEY}"


def check(source: SourceSpec, provider: str, where: str, *, compat: bool) -> None:
    """Raise Refused where the token would not be sent."""
    if source.secret_ref is None:
        return
    if provider not in PROVIDERS:
        raise Refused(f"{where}: provider {provider[:63]} sends no token; remove secretRef")
    if compat:
        raise Refused(
            f"{where}: secretRef: the controller runs with --compat {names.OPERATORS}, whose evaluator reads "
            "no token from a file; bring these flags into the cluster by a FlagSource, and name their set"
        )


def volumes(spec: FeatureFlagSourceSpec) -> list[dict[str, Any]]:
    """One of each token. A pod starts without the Secret, too: how long an application waits for flags is
    said elsewhere.
    """
    return [
        {
            "name": _volume(number),
            "secret": {"secretName": name, "items": [{"key": KEY, "path": KEY}], "optional": True},
        }
        for number, name in _secrets(spec)
    ]


def mounts(spec: FeatureFlagSourceSpec) -> list[dict[str, Any]]:
    """Where the evaluator has them: whole folders, since what is mounted by `subPath` is never updated."""
    return [
        {"name": _volume(number), "mountPath": _folder(number), "readOnly": True}
        for number, _ in _secrets(spec)
    ]


def _secrets(spec: FeatureFlagSourceSpec) -> Iterator[tuple[int, str]]:
    return ((number, each.secret_ref.name) for number, each in enumerate(spec.sources) if each.secret_ref)


def _folder(number: int) -> str:
    return f"/var/run/flagstaff/source-{number}"


def _volume(number: int) -> str:
    return f"flagstaff-source-{number}"
