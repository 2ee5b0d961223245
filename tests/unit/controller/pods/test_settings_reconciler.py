"""FeatureFlagSources and InProcessConfigurations: what their status says, and what wakes them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from controller.api.meta import ObjectKey, Resource
from controller.pods.flagd_reconciler import SettingsReconciler
from controller.pods.installation import Options
from controller.pods.known_objects import KnownObjects
from controller.pods.stage import FEATURE_FLAG_SOURCES, IN_PROCESS_CONFIGURATIONS
from controller.runtime.cache import Cache, Change
from controller.runtime.watches import indexes_of, keys_to_wake
from tests.worlds.objects import cache_of, thing
from tests.worlds.stages import take_turn

NOW = datetime(2026, 1, 2, tzinfo=UTC)
STAGES = (FEATURE_FLAG_SOURCES, IN_PROCESS_CONFIGURATIONS)
OPTIONS = Options(flag_files=True)


def source(*sources: dict[str, Any], **spec: Any) -> Resource:
    return thing("FeatureFlagSource", "one", {"sources": [*sources], **spec})


FLAGS = thing("FeatureFlagConfiguration", "checkout")
OTHER = thing("FeatureFlagConfiguration", "checkout", namespace="other")
IN_PROCESS = thing("InProcessConfiguration", "one", {"selector": "checkout"})


async def ready(given: Resource, *beside: Resource, options: Options = OPTIONS) -> tuple[str, str, str]:
    objects = cache_of(given, *beside, stages=STAGES)
    reconciler = SettingsReconciler(KnownObjects(objects, ()), options)
    return (await take_turn(reconciler, given, NOW)).ready


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (source({"source": "checkout"}), "follows shop/checkout"),
        (source({"source": "checkout", "provider": "file"}), "follows shop/checkout"),
        (source({"source": "https://x", "provider": "http"}), "follows what is not of this cluster"),
        (IN_PROCESS, "follows shop/checkout"),
        (
            thing("InProcessConfiguration", "one", {"host": "flags.example"}),
            "follows what is not of this cluster",
        ),
        (
            source({"source": "checkout"}, syncProviderArgs=["x"]),
            "follows shop/checkout; FeatureFlagSource: syncProviderArgs is ignored: give each source its "
            "fields",
        ),
    ],
)
async def test_it_is_ready_where_pods_would_be_injected(given: Resource, expected: str) -> None:
    assert await ready(given, FLAGS) == ("True", "Succeeded", expected)


@pytest.mark.parametrize("given", [source({"source": "checkout"}), IN_PROCESS])
async def test_a_flag_set_that_is_not_there_is_waited_for(given: Resource) -> None:
    assert await ready(given) == ("False", "FlagSetNotFound", "there is no flag set shop/checkout")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (source(), "FeatureFlagSource one: spec.sources"),
        (source({"source": "other/checkout"}), "FeatureFlagSource: sources[0]: "),
        (source({"source": "a", "provider": "disk"}), "FeatureFlagSource: sources[0]: provider 'disk'"),
        (
            thing("InProcessConfiguration", "one", {"selector": "other/checkout"}),
            "InProcessConfiguration: selector: ",
        ),
        (thing("InProcessConfiguration", "one", {}), "InProcessConfiguration: selector is missing"),
    ],
)
async def test_what_pods_are_refused_for_stalls_in_the_same_words(given: Resource, expected: str) -> None:
    status, reason, message = await ready(given, OTHER)
    assert (status, reason) == ("False", "InvalidSpec")
    assert message.startswith(expected)


async def test_without_the_option_files_are_refused() -> None:
    given = source({"source": "checkout", "provider": "file"})
    _, reason, message = await ready(given, FLAGS, options=replace(OPTIONS, flag_files=False))
    assert reason == "InvalidSpec"
    assert "--flag-files" in message


def test_a_flag_set_that_comes_and_a_grant_wake_those_that_they_concern() -> None:
    objects = Cache(indexes_of(STAGES))
    borrowing = replace(
        source({"source": "shop/checkout"}), key=ObjectKey("FeatureFlagSource", "bank", "one")
    )
    for each in (source({"source": "checkout"}), borrowing, IN_PROCESS):
        objects.learn(each)
    keys = {ObjectKey(kind, "shop", "one") for kind in ("FeatureFlagSource", "InProcessConfiguration")}
    assert keys_to_wake(STAGES, objects, Change(None, FLAGS)) == {*keys, borrowing.key}
    assert keys_to_wake(STAGES, objects, Change(FLAGS, replace(FLAGS, generation=2))) == set()
    grant = thing("FlagGrant", "one", {"from": [{"kind": "Pod", "namespace": "bank"}]})
    assert keys_to_wake(STAGES, objects, Change(None, grant)) == {borrowing.key}
