"""What of kopf's log reaches users."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from controller.api.kinds import FLAG_SET
from controller.api.records import FLUX_SOURCES
from controller.kube.kopf_watches import quieten_kopf

if TYPE_CHECKING:
    import pytest


def test_kinds_that_are_not_installed_are_named_once_as_kubectl_names_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    quieten_kopf()
    caplog.set_level(logging.INFO)
    selectors = ", ".join(
        f"Selector(group={each.group!r}, version={each.version!r}, any_name={each.plural!r})"
        for each in (FLAG_SET, *FLUX_SOURCES)
    )
    logger = logging.getLogger("kopf._core.reactor.observation")
    for _ in range(2):
        logger.warning("Unresolved resources cannot be served (try creating their CRDs): %s", selectors)
    [message] = [each.getMessage() for each in caplog.records]
    assert message == (
        "not installed; watched as soon as they are: buckets.source.toolkit.fluxcd.io, "
        "externalartifacts.source.toolkit.fluxcd.io, flagsets.flagstaff.dev, "
        "gitrepositories.source.toolkit.fluxcd.io, ocirepositories.source.toolkit.fluxcd.io"
    )


def test_a_refused_search_for_kinds_is_no_line_for_each_try(caplog: pytest.LogCaptureFixture) -> None:
    quieten_kopf()
    logging.getLogger("kopf._core.reactor.observation").error(
        "Request attempt #1 failed; will retry: GET /api"
    )
    assert not caplog.records
