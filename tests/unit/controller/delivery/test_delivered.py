"""What one object delivers, for the proxy and for the object's status alike."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.featureflagconfiguration import MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.configurations.reconciler import ConfigurationReconciler
from controller.delivery.claims import ClaimIndex
from controller.delivery.delivered import delivery_of
from controller.delivery.overrides import BY_FLAG_SET
from controller.delivery.rollouts import PromotedSets, progress_of
from controller.proxy.building import EncodedFlagSet, build
from controller.runtime.cache import Cache
from evaluator.flags.accept import Progress
from evaluator.flags.rollouts import Rollout
from tests.worlds.flags import flag, flag_set_of
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from controller.api.meta import Resource

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOOD = flag(variants={"on": 1, "off": 2})
OFF = {**GOOD, "defaultVariant": "off"}


def configuration(spec: dict[str, Any]) -> Resource:
    return thing("FeatureFlagConfiguration", "web", spec)


def nothing(_: str) -> Resource | None:
    return None


def override(name: str, **spec: Any) -> Resource:
    wanted = {
        "flagSetRef": {"name": "web"}, "flag": "a", "variant": "off", "reason": "INC-1",
        "expiresAt": "2026-01-01T12:00:00+01:00",
    }  # fmt: skip
    return thing("FlagOverride", name, wanted | spec, creationTimestamp="2026-01-01T00:00:00Z")


async def digest_in_status(resource: Resource, objects: Cache, now: datetime = NOW) -> object:
    result = await ConfigurationReconciler(objects, ClaimIndex()).reconcile(resource, now)
    return result.status.fields()["digest"]


async def test_proxy_and_status_digest_a_set_with_an_override_alike() -> None:
    resource, objects = configuration({"flagSpec": {"flags": {"a": GOOD, "b": GOOD}}}), Cache([BY_FLAG_SET])
    objects.put(override("off"))
    built = build(
        resource, nothing, None, progress_of(objects, resource, NOW.timestamp(), PromotedSets(objects.get))
    )
    assert isinstance(built, EncodedFlagSet)
    assert built.digest == await digest_in_status(resource, objects)
    assert built.digest != await digest_in_status(resource, Cache())
    end = NOW + timedelta(hours=11)
    assert await digest_in_status(resource, objects, end) == await digest_in_status(resource, Cache())


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([override("off"), override("on", variant="on")], ["off", "on"]),
        ([override("off", flagSetRef={"name": "other"})], []),
        ([override("off", expiresAt="2025-12-31T23:59:59Z")], []),
        ([override("off", expiresAt="9999-12-31T23:59:59-23:00")], []),
        ([override("off", flag=3)], []),
        ([replace(override("off"), deleting=True)], []),
        ([override("young"), replace(override("zzz"), created="2025-01-01T00:00:00Z")], ["zzz", "young"]),
    ],
)
def test_overrides_in_force_are_valid_and_before_their_expiry_the_oldest_first(
    objects: list[Resource], expected: list[str]
) -> None:
    cache = Cache([BY_FLAG_SET])
    for resource in objects:
        cache.put(resource)
    progress = progress_of(cache, configuration({}), NOW.timestamp(), PromotedSets(cache.get))
    assert [one.name for one in progress.overrides] == expected


def test_the_next_content_is_held_to_the_desired_flags_and_not_to_progress() -> None:
    resource = configuration({"flagSpec": {"flags": {"a": GOOD}}})
    promoted = flag_set_of({"flags": {"a": OFF}})
    found = delivery_of(resource, nothing, Progress(rollouts=(Rollout("r", ("a",), promoted, ""),)))
    assert found.flag_set.flags["a"].default_variant == "off"
    assert found.desired.flags["a"].default_variant == "on"


def test_a_document_that_cannot_be_read_has_no_digest_and_a_cause() -> None:
    found = delivery_of(configuration({"featureFlagSpec": "{"}), nothing)
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
