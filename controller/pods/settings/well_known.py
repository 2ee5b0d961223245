"""Names of what injection reads from a pod and writes into one. Users rely on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ENABLED: Final = "openfeature.dev/enabled"
"""OpenFeature Operator's annotation; nothing happens unless it is exactly `true`."""
PREFIX: Final = "flagstaff.dev/"
FLAG_SET: Final = "flagstaff.dev/flagset"
"""The name of a FlagSet, FeatureFlagConfiguration or FeatureFlag in the pod's namespace."""
CONTAINERS: Final = "flagstaff.dev/containers"
IMAGE: Final = "flagstaff.dev/image"
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
    FLAG_SET, CONTAINERS, IMAGE, RESOURCES, LOG_LEVEL, SIDECAR,
    PORT, MANAGEMENT_PORT, SYNC_PORT, OFREP_PORT,
    ON_MISSING, START_DEADLINE, SOCKET_PATH, STATE_CLAIM,
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
