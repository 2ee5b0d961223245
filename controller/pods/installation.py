"""Names that injection reads and writes, which users rely on, and the installation's options for it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api import featureflagconfiguration
from controller.delivery import standing_orders
from controller.delivery.standing_orders import PREFIX as SELECTOR_PREFIX
from controller.runtime.plain_text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


ENABLED: Final = "openfeature.dev/enabled"
"""OpenFeature Operator's annotation; nothing happens unless it is exactly `true`."""
PREFIX: Final = "flagstaff.dev/"
FLAG_SET: Final = "flagstaff.dev/flagset"
"""The name of a FlagSet, FeatureFlagConfiguration or FeatureFlag in the pod's namespace."""
EVALUATOR: Final = "flagstaff.dev/evaluator"
"""`node`: the pod asks the evaluator of its node; `sidecar`, as without it: one of its own."""
ON_NODE: Final = "node"
CONTAINERS: Final = "flagstaff.dev/containers"
IMAGE_ANNOTATION: Final = "flagstaff.dev/image"
RESOURCES: Final = "flagstaff.dev/resources"
LOG_LEVEL: Final = "flagstaff.dev/log-level"
SIDECAR: Final = "flagstaff.dev/sidecar"
PORT: Final = "flagstaff.dev/port"
MANAGEMENT_PORT: Final = "flagstaff.dev/management-port"
SYNC_PORT: Final = "flagstaff.dev/sync-port"
OFREP_PORT: Final = "flagstaff.dev/ofrep-port"
ON_MISSING: Final = "flagstaff.dev/on-missing-flags"
START_DEADLINE: Final = "flagstaff.dev/start-deadline"
SOCKET_PATH: Final = "flagstaff.dev/socket-path"
STATE_CLAIM: Final = "flagstaff.dev/state-claim"
INJECTED: Final = "flagstaff.dev/injected"
"""Written: what was injected, as JSON."""
RESTARTED_AT: Final = "flagstaff.dev/restarted-at"
"""Written into a workload's template, and so by its controller on pods: when it was restarted, RFC 3339."""
RESTARTED_FOR: Final = "flagstaff.dev/restarted-for"
"""Written beside it: a digest of what the pods were to get."""
FLAG_FILES: Final = "flagstaff.dev/flag-files"
"""Written as a label, and as an annotation with the flag sets of the pod's namespace that its evaluator reads
from ConfigMaps, separated by commas.
"""
FLAG_READER: Final = "flagstaff.dev/flag-reader"
"""Written as a label, and as an annotation with the service account, of pods that read the API server."""
PROXIED: Final = "flagstaff.dev/proxied"
"""Written as a label of pods that ask the proxy, where that runs on demand."""
FLAGS_CHANGED: Final = "flagstaff.dev/flags-changed"
"""Written whenever such a ConfigMap changes: the kubelet then syncs the pod's volumes at once."""
TRANSPORT: Final = "openfeature.dev/transport"
"""`socket`: evaluation by a Unix socket; `port`: by a port, whatever a FeatureFlagSource says."""
REMARKS: Final = "openfeature.dev/operator-remarks"
"""Written: in one line, what was done to a pod, or to a workload with flags."""
PROPOSED_REMARKS: Final = "openfeature.io/operator-remarks"
"""The same under the name of the proposal OFEP-001, where its annotations are used."""
FLAGS: Final = "openfeature.dev/flags"
"""The annotation of a workload, or of its pods' template, that holds flags: a direct set."""
DIRECT_SET: Final = "flagstaff.dev/direct-set"
"""Written: as a label on a workload with a direct set, and as an annotation of its pods' template, with the
name of the FeatureFlagConfiguration that holds the flags.
"""
APPLIED: Final = "flagstaff.dev/direct-set-applied"
"""Written into such a workload: who applied the flags, when, and what was added to the
template, as JSON.
"""
ASKED: Final = (
    FLAG_SET, CONTAINERS, IMAGE_ANNOTATION, RESOURCES, LOG_LEVEL, SIDECAR,
    PORT, MANAGEMENT_PORT, SYNC_PORT, OFREP_PORT,
    ON_MISSING, START_DEADLINE, SOCKET_PATH, STATE_CLAIM, EVALUATOR,
)  # fmt: skip
"""Annotations that a pod may have."""
WRITTEN: Final = (INJECTED, RESTARTED_AT, RESTARTED_FOR, FLAG_FILES, FLAG_READER, FLAGS_CHANGED)
"""Annotations and labels that the controller writes."""
KNOWN: Final = (*ASKED, *WRITTEN, DIRECT_SET)

SOURCES: Final = "openfeature.dev/featureflagsource"
"""OpenFeature Operator's: FeatureFlagSources of the pod's namespace, separated by commas."""
IN_PROCESS: Final = "openfeature.dev/inprocessconfiguration"
"""OpenFeature Operator's: InProcessConfigurations of the pod's namespace, separated by commas."""
OLD_SOURCES: Final = "openfeature.dev/flagsourceconfiguration"
"""OpenFeature Operator's name of SOURCES until 0.5."""
OLD_FLAGS: Final = "openfeature.dev/featureflagconfiguration"
"""OpenFeature Operator's until 0.5: FeatureFlagConfigurations, separated by commas."""
FOLLOWED: Final = (FLAG_SET, SOURCES, IN_PROCESS, OLD_SOURCES, OLD_FLAGS)
"""Annotations by which a pod may name the flags that it follows."""

_TEMPLATE: Final = ("spec", "template")
TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": (),
    "Deployment": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
    "DaemonSet": _TEMPLATE,
    "ReplicaSet": _TEMPLATE,
    "Job": _TEMPLATE,
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""The path of the template of pods, by the kind that has one; a pod is its own."""

CONTAINER: Final = "flagstaff-evaluator"
TOKEN: Final = "flagstaff-token"  # noqa: S105 - the name of a volume
TOKEN_PATH: Final = "/var/run/flagstaff/token"  # noqa: S105
CA: Final = "flagstaff-ca"
CA_PATH: Final = "/var/run/flagstaff/ca"
STATE: Final = "flagstaff-state"
STATE_PATH: Final = "/var/lib/flagstaff"
SOCKET: Final = "flagstaff-socket"

OPERATORS: Final = "openfeature-operator"
"""What `--compat` may be."""
OPERATORS_CONTAINER: Final = "flagd"
ALLOW_SYNC: Final = "openfeature.dev/allowkubernetessync"
"""OpenFeature Operator writes it where flags come from the cluster."""


def sources(annotations: Mapping[str, str]) -> str:
    """The annotation that names the FeatureFlagSources of a pod; empty where none does. What OpenFeature
    Operator read until 0.5 counts where nothing newer says what the pod follows: what is left over of it
    changes no pod.
    """
    if SOURCES in annotations:
        return SOURCES
    newer = annotations.keys() & {FLAG_SET, IN_PROCESS}
    return OLD_SOURCES if OLD_SOURCES in annotations and not newer else ""


IMAGE: Final = "registry.example/flagstaff-evaluator:0.1.0"
NODE_HOST: Final = "flagstaff-node-evaluator.flagstaff-system.svc"
ADDRESS: Final = "flagstaff-proxy.flagstaff-system.svc:8015"
AUDIENCE: Final = "flagstaff-proxy"
SERVED: Final = (featureflagconfiguration.KIND, featureflagconfiguration.FLAG_KIND)
"""Kinds of what the proxy serves."""
FLAG_SETS: Final = standing_orders.FLAG_SETS


NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""What the API server takes for the name of an object."""


class PodRefused(ValueError):
    """A pod cannot be injected as it asks; the text says what is wrong, where, and what to do."""


class NotThere(PodRefused):
    """An object that an annotation names does not exist; the text leaves out which annotation."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the installation, the same for all pods."""

    image: str = IMAGE
    """The evaluator's, unless a pod names another."""
    proxy_address: str = ADDRESS
    """host:port of the proxy's port 8015."""
    proxy_audience: str = AUDIENCE
    """Audience of the pods' tokens, which the proxy accepts."""
    proxy_ca: str = ""
    """A ConfigMap beside the pod, whose `ca.crt` signed the proxy's certificate; empty: plain text."""
    compat: bool = False
    """Whether the container is OpenFeature Operator's, which stock flagd understands."""
    flag_files: bool = False
    """Whether flags are written into ConfigMaps, for sources of the provider `file`."""
    proxy_on_demand: bool = False
    """Whether the proxy runs while pods ask it alone."""
    flag_readers: bool = False
    """Whether, with `compat`, stock flagd reads FeatureFlags of the provider `kubernetes` by itself."""
    node_host: str = ""
    """The host by which a pod finds the evaluator of its node; empty: there is none."""

    @property
    def container(self) -> str:
        """The evaluator's name."""
        return OPERATORS_CONTAINER if self.compat else CONTAINER


@dataclass(frozen=True, slots=True)
class FlagSetFound:
    """An object that a pod's annotation names."""

    name: str
    """The name of the FeatureFlagConfiguration or FeatureFlag that the proxy serves."""
    source: str = ""
    """`Kind/name` of the object that the annotation names; empty where it was not looked up."""
    revision: str = ""
    """The one that was applied last; empty where it is not known."""
    flag_set_id: str = ""
    """Empty where it has none, or it is not known."""


class Known(Protocol):
    """The objects that annotations name."""

    def refer(
        self, reader: str, kinds: Sequence[str], namespace: str, name: str
    ) -> tuple[tuple[str, ...], str]:
        """(those of `kinds` of which pods of the namespace `reader` may refer to the object `name` of another
        namespace, a warning or nothing). Raises Refused, where to none.
        """

    def flag_set(self, namespace: str, name: str, kinds: Sequence[str] = FLAG_SETS) -> FlagSetFound:
        """What is served under this name. Raises Refused where there is nothing."""

    def spec(self, kind: str, namespace: str, name: str) -> Mapping[str, Any]:
        """Return the spec of a FeatureFlagSource or InProcessConfiguration. Raises Refused."""


NAMESPACED: Final = "namespaced"
"""All flags are of the pod's own namespace."""
ACROSS: Final = "cross-namespace"
"""Some flags are of another namespace."""
EXTERNAL: Final = "external"
"""Some flags come from outside the cluster's objects."""
SCOPED: Final = "scoped"
"""The evaluator gets the flag sets that are named, and no other flags."""
REFRESHABLE: Final = "refreshable"
"""Changes of the flags reach the pod without a restart."""
_MOST: Final = 500
_PROPOSAL: Final = ("openfeature.io/", "openfeature.agent/")


def remark_of(words: Sequence[str], *parts: str) -> str:
    """The line: `namespaced, scoped; flags of FlagSet checkout; …`. Empty parts are left out."""
    return one_line("; ".join(filter(None, (", ".join(words), *parts))), _MOST)


def remark_annotations(remark: str, annotations: Iterable[str]) -> dict[str, str]:
    """The annotations that hold a remark, on an object with these annotations: also under the name of the
    proposal OFEP-001 where one of its annotations is used.
    """
    proposed = any(name.startswith(_PROPOSAL) for name in annotations)
    return {REMARKS: remark, **({PROPOSED_REMARKS: remark} if proposed else {})}


def scope_of(sources: Sequence[Mapping[str, Any]], namespace: str) -> tuple[str, ...]:
    """The words for an evaluator's sources, for a pod of `namespace`: entries without a `provider` are flag
    sets of the cluster, by selector.
    """
    selectors = [str(source.get("selector")) for source in sources if "provider" not in source]
    named = all("selector" in source or source.get("provider") == "file" for source in sources)
    reach = NAMESPACED
    if any(source.get("provider", "file") != "file" for source in sources):
        reach = EXTERNAL
    elif any(
        re.split("[/+]", selector.removeprefix(SELECTOR_PREFIX))[0] != namespace for selector in selectors
    ):
        reach = ACROSS
    return (reach, *([SCOPED] if named else []), REFRESHABLE)


def flags_of(record: Mapping[str, str]) -> str:
    """`flags of FlagSet checkout, …`, by the record of what a pod follows."""
    named = record.get("from") or record.get("flagSet", "")
    return f"flags of {', '.join(name.replace('/', ' ', 1) for name in named.split(','))}" if named else ""


def evaluator_of(image: str) -> str:
    """`evaluator 0.4.0`, by the tag of its image, or the beginning of its digest."""
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return f"evaluator {tag or digest[:19] or 'latest'}"
