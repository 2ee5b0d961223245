"""What one object delivers, for the proxy and for the object's status alike."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from controller.api.objects.fields import InvalidSpecError
from controller.api.objects.meta import Resource
from controller.api.openfeature.featureflagconfiguration import MissingShardsError
from controller.configurations.reconciler import ConfigurationReconciler
from controller.delivery.claims import Claims
from controller.delivery.delivered import delivery_of, no_progress
from controller.proxy.streams.building import EncodedFlagSet, build
from controller.runtime.objects.cache import Cache
from evaluator.flags.accept import NO_PROGRESS, Progress
from evaluator.flags.layers.merge import parse

GOOD: dict[str, Any] = {"state": "ENABLED", "variants": {"on": 1, "off": 2}, "defaultVariant": "on"}
OFF = {**GOOD, "defaultVariant": "off"}


def configuration(spec: dict[str, Any]) -> Resource:
    meta = {"name": "web", "namespace": "shop"}
    return Resource.of({"kind": "FeatureFlagConfiguration", "metadata": meta, "spec": spec})


def nothing(_: str) -> Resource | None:
    return None


async def digest_in_status(resource: Resource, progress: Progress) -> object:
    reconciler = ConfigurationReconciler(Cache(), Claims(), progress=lambda _: progress)
    result = await reconciler.reconcile(resource, datetime(2026, 1, 1, tzinfo=UTC))
    return result.status.fields()["digest"]


async def test_proxy_and_status_digest_a_set_under_rollout_alike() -> None:
    resource = configuration({"flagSpec": {"flags": {"a": GOOD, "b": GOOD}}})
    before = parse(json.dumps({"flags": {"a": OFF}}).encode(), file="flags.json").flag_set
    progress = Progress({"a": before.flags["a"]})
    built = build(resource, nothing, None, progress)
    assert isinstance(built, EncodedFlagSet)
    assert built.digest == await digest_in_status(resource, progress)
    assert built.digest != await digest_in_status(resource, NO_PROGRESS)


def test_the_next_content_is_held_to_the_desired_flags_and_not_to_progress() -> None:
    resource = configuration({"flagSpec": {"flags": {"a": GOOD}}})
    instead = parse(json.dumps({"flags": {"a": OFF}}).encode(), file="flags.json").flag_set
    found = delivery_of(resource, nothing, Progress(instead.flags))
    assert found.flag_set.flags["a"].default_variant == "off"
    assert found.desired.flags["a"].default_variant == "on"


def test_a_document_that_cannot_be_read_has_no_digest_and_a_cause() -> None:
    found = delivery_of(configuration({"featureFlagSpec": "{"}), nothing, no_progress(configuration({})))
    assert (found.digest, bool(found.cause)) == ("", True)


@pytest.mark.parametrize(
    ("spec", "error"),
    [({}, InvalidSpecError), ({"shards": [{"name": "s", "digest": "d"}]}, MissingShardsError)],
)
def test_an_object_without_flags_yet_raises_an_error_of_its_own(
    spec: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        delivery_of(configuration(spec), nothing)
