"""A controller at rest: a thousand objects that are ready cost no write a minute."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.cluster.api import Api, path_of
from tests.cluster.controllers import controller
from tests.cluster.patience import within
from tests.cluster.spines import spine_in
from tests.worlds.flags import flags
from tests.worlds.objects import condition, configuration, flag_set, flag_source

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.controllers import ControllerProcess
    from tests.cluster.plane import Plane
    from tests.cluster.spines import Spine

KINDS = ("flagsource", "flagset", "featureflagconfiguration")
SETS = 300
MINUTE = 60.0


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_thousand_ready_objects_cost_no_write_in_a_minute(
    spare: Plane, spare_namespace: str, tmp_path: Path
) -> None:
    with spine_in(spare, spare_namespace, tmp_path) as spine, controller(spare, tmp_path / "a") as process:
        fill(spine)
        within(lambda: all_ready(spine), patience=200.0)
        # Events are posted behind the statuses, one after the other.
        within(lambda: pauses(process), patience=60.0)
        versions, writes = object_versions(spine), count_writes(process)
        # What is promised is of a minute: sources are looked at meanwhile, twelve times each.
        time.sleep(MINUTE)
        assert count_writes(process) == writes
        assert object_versions(spine) == versions


def fill(spine: Spine) -> None:
    """A source that is looked at often, sets of it, and as many objects that users wrote: a thousand with
    what the sets make.
    """
    spine.apply(flag_source(spine.url, interval="5s"))
    content = json.loads(flags(banner="on"))
    with ThreadPoolExecutor(8) as pool:
        sets = pool.map(lambda n: spine.apply(flag_set(name=f"set-{n}")), range(SETS))
        users = pool.map(
            lambda n: spine.apply(configuration(f"user-{n}", flagSpec=content)), range(1000 - 2 * SETS)
        )
        assert len([*sets, *users]) == 1000 - SETS


def all_ready(spine: Spine) -> bool:
    found = [each for kind in KINDS for each in spine.all(kind)]
    ready = [each for each in found if condition(each, "Ready").get("status") == "True"]
    return len(ready) == len(found) >= 1000


def object_versions(spine: Spine) -> dict[str, str]:
    """The version of every object: each write of anybody's makes another. Events count as well."""
    api = Api(spine.plane)
    return {
        each["metadata"]["uid"]: each["metadata"]["resourceVersion"]
        for kind in (*KINDS, "event")
        for each in api.items(path_of(kind, spine.name))
    }


def pauses(process: ControllerProcess) -> bool:
    """Whether the controller writes nothing for two seconds."""
    before = count_writes(process)
    time.sleep(2.0)
    return count_writes(process) == before


def count_writes(process: ControllerProcess) -> float:
    """What the controller itself counts."""
    lines = re.findall(r"^flagstaff_api_writes_total\{.*\} (\S+)$", process.metrics(), re.MULTILINE)
    return sum(map(float, lines))
