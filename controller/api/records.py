"""The records of our kinds, but those whose fields name kinds: FlagGrant and FlagAlert read this list. Flux's
sources, too, may be granted.
"""

from __future__ import annotations

from typing import Final

from controller.api import (
    evaluatorupgrade,
    featureflagconfiguration,
    featureflagsource,
    flagd,
    flagoverride,
    flagpolicy,
    flagprovider,
    flagreceipt,
    flagreceiver,
    flagrollout,
    flagset,
    flagshard,
    flagsource,
    inprocessconfiguration,
    metrictemplate,
)
from controller.api.artifact_status import SourceStatus
from controller.api.kind import (
    DELIVERED_FOR_SETS,
    DELIVERY,
    READ_BY_CONTROLLER,
    SHOWN_BY_PAGE,
    ResourceType,
    Right,
)

RECORDS: Final = (
    flagsource.RECORD,
    flagset.RECORD,
    flagshard.RECORD,
    flagoverride.RECORD,
    flagpolicy.RECORD,
    flagrollout.RECORD,
    metrictemplate.RECORD,
    flagreceiver.RECORD,
    flagprovider.RECORD,
    flagreceipt.RECORD,
    featureflagconfiguration.RECORD,
    featureflagconfiguration.FEATURE_FLAG_RECORD,
    featureflagsource.RECORD,
    inprocessconfiguration.RECORD,
    flagd.RECORD,
    evaluatorupgrade.RECORD,
)
FLUX: Final = "source.toolkit.fluxcd.io/v1"
_FLUX_RIGHTS: Final = (READ_BY_CONTROLLER, SHOWN_BY_PAGE)
FLUX_SOURCES: Final = (
    ResourceType(FLUX, "GitRepository", "gitrepositories", status=SourceStatus, rights=_FLUX_RIGHTS),
    ResourceType(FLUX, "OCIRepository", "ocirepositories", status=SourceStatus, rights=_FLUX_RIGHTS),
    ResourceType(FLUX, "Bucket", "buckets", status=SourceStatus, rights=_FLUX_RIGHTS),
    ResourceType(
        FLUX,
        "ExternalArtifact",
        "externalartifacts",
        status=SourceStatus,
        rights=(*_FLUX_RIGHTS, DELIVERED_FOR_SETS, Right(DELIVERY, ("patch",), "status")),
    ),
)

GRANTED: Final = (*(kind for kind in RECORDS if kind.is_granted), *FLUX_SOURCES)
"""To whose objects a FlagGrant may let those of other namespaces refer."""
ALERTED: Final = tuple(kind for kind in RECORDS if kind.has_alerts)
"""The Events of whose objects a FlagAlert may choose."""
