"""All targets, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fuzz import (
    alerts,
    artifacts,
    building,
    documents,
    management,
    requests,
    resolve_requests,
    settings,
    signatures,
    streams,
    webhooks,
    workloads,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.fuzz.target import Target

TARGETS: Final[Mapping[str, Target]] = {
    **alerts.TARGETS,
    **building.TARGETS,
    **documents.TARGETS,
    **requests.TARGETS,
    **resolve_requests.TARGETS,
    **management.TARGETS,
    **streams.TARGETS,
    **settings.TARGETS,
    **webhooks.TARGETS,
    **workloads.TARGETS,
    **artifacts.TARGETS,
    **signatures.TARGETS,
}
