"""What one object delivers, for the proxy and for the object's status alike."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from controller.api.configuration import MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.api.meta import Resource
from controller.configurations.reconciler import ConfigurationReconciler
from controller.delivery.claims import Claims
from controller.delivery.delivered import delivered
from controller.proxy.streams.building import EncodedFlagSet, build
from controller.runtime.objects.cache import Cache

GOOD: dict[str, Any] = {"state": "ENABLED", "variants": {"on": 1, "off": 2}, "defaultVariant": "on"}


def configuration(spec: dict[str, Any]) -> Resource:
    meta = {"name": "web", "namespace": "shop"}
    return Resource.of({"kind": "FeatureFlagConfiguration", "metadata": meta, "spec": spec})


def nothing(_: str) -> Resource | None:
    return None


async def test_proxy_and_status_digest_a_set_alike() -> None:
    resource = configuration({"flagSpec": {"flags": {"a": GOOD, "b": GOOD}}})
    built = build(resource, nothing, None)
    assert isinstance(built, EncodedFlagSet)
    reconciler = ConfigurationReconciler(Cache(), Claims())
    result = await reconciler.reconcile(resource, datetime(2026, 1, 1, tzinfo=UTC))
    assert built.digest == result.status["digest"]


def test_a_document_that_cannot_be_read_has_no_digest_and_a_cause() -> None:
    found = delivered(configuration({"featureFlagSpec": "{"}), nothing)
    assert (found.digest, bool(found.cause)) == ("", True)


@pytest.mark.parametrize(
    ("spec", "error"),
    [({}, InvalidSpecError), ({"shards": [{"name": "s", "digest": "d"}]}, MissingShardsError)],
)
def test_an_object_without_flags_yet_raises_an_error_of_its_own(
    spec: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        delivered(configuration(spec), nothing)
