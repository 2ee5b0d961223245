"""Files of the evaluator: flags in ConfigMaps that the controller writes, and tokens in Secrets. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.pods import installation
from controller.pods.installation import PodRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from controller.api.featureflagsource import SourceSpec

PROVIDER: Final = "file"
MOST_KEY: Final = 253
"""Characters of a ConfigMap's key."""
TOKEN_PROVIDERS: Final = frozenset({"http", "grpc"})
"""The providers that send a token."""
TOKEN_KEY: Final = "token"  # noqa: S105 - a key of the Secret


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
        """Return where the ConfigMap is mounted."""
        return f"/etc/flagd/{self.namespace}_{self.name}"

    @property
    def source(self) -> dict[str, str]:
        """Return the entry of `--sources`."""
        return {"uri": f"{self.folder}/{self.key}", "provider": PROVIDER}


def marks(files: Sequence[FlagFile]) -> Iterator[tuple[str, str, str]]:
    """(labels or annotations, name, value) by which the controller finds the pod."""
    if files:
        yield "labels", installation.FLAG_FILES, "true"
        yield "annotations", installation.FLAG_FILES, ",".join(file.name for file in files)


def files_of_pod(metadata: Mapping[str, Any]) -> tuple[FlagFile, ...]:
    """The files of a pod with this metadata, which anybody may have written."""
    given = (metadata.get("annotations") or {}).get(installation.FLAG_FILES) or ""
    names = dict.fromkeys(name.strip() for name in str(given).split(","))
    return tuple(FlagFile(str(metadata.get("namespace", "")), name) for name in [*names][:64] if name)


def token_folder(number: int) -> str:
    """Return where the Secret of the source of this number, in the pod's namespace, is mounted."""
    return f"/var/run/flagstaff/source-{number}"


def token_file(number: int) -> str:
    """Return where the evaluator finds the token of the source of this number."""
    return f"{token_folder(number)}/{TOKEN_KEY}"


def check_token(source: SourceSpec, provider: str, where: str, *, compat: bool) -> None:
    """Raise Refused where the token would not be sent."""
    if source.secret_ref is None:
        return
    if provider not in TOKEN_PROVIDERS:
        raise PodRefused(f"{where}: provider {provider[:63]} sends no token; remove secretRef")
    if compat:
        raise PodRefused(
            f"{where}: secretRef: the controller runs with "
            f"--compat {installation.OPERATORS}, whose evaluator "
            "reads no token from a file; bring these flags into the cluster by a FlagSource, and name their "
            "set"
        )
