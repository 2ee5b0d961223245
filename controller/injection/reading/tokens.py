"""Tokens of what is followed: Secrets of the pod's namespace, mounted into the evaluator's container, which
reads them again at every request. No token stands in a pod's arguments. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.injection import names
from controller.injection.options import Refused

if TYPE_CHECKING:
    from controller.api.featureflagsource import SourceSpec

PROVIDERS: Final = frozenset({"http", "grpc"})
"""Those that send one."""
KEY: Final = "token"
"""Of the Secret."""


def folder(number: int) -> str:
    """Where the Secret of the source of this number is mounted."""
    return f"/var/run/flagstaff/source-{number}"


def file(number: int) -> str:
    """Where the evaluator finds the token of the source of this number."""
    return f"{folder(number)}/{KEY}"


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
