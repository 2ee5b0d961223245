"""Definitions that are small to store and large to read: they cost their helper, and nobody else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.artifact_status import ArtifactStatus
from controller.api.fields import read
from controller.api.flagset import KIND, FlagSetSpec
from controller.api.meta import ObjectKey, Resource
from controller.artifacts.archive import ArchiveLimits, pack
from controller.flagsets.build import build
from controller.flagsets.inputs import steps
from controller.flagsets.limited_build import MODULES, LimitedBuild
from controller.flagsets.preparation import NO_STEPS, Steps
from controller.runtime.helper import TaskLimits
from controller.runtime.helpers import Helpers, HelperTasks
from controller.runtime.limits import Places
from controller.runtime.setbacks import Failed, Setback, Stalled
from tests.hostile_definitions import large_document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from controller.flagsets.build import Built

SPEC = read(FlagSetSpec, {"sourceRef": {"kind": "FlagSource", "name": "flags"}})
ARTIFACT = ArtifactStatus(url="http://a", revision="main@sha1:abc", digest="sha256:abc")
RESOURCE = Resource(ObjectKey(KIND, "shop", "flags"), "uid", 1, "1")
ALWAYS, SMALL = ArchiveLimits(bytes=1), ArchiveLimits(bytes=64 * 1024)
SIXTY_SECONDS = TaskLimits(cpu_seconds=60.0)
FLAG = '{"flags":{"banner":{"state":"ENABLED","variants":{"on":"${WORD}"},"defaultVariant":"on"}}}'


@pytest.fixture
async def helpers() -> AsyncIterator[Helpers]:
    helpers = Helpers(MODULES)
    yield helpers
    await helpers.close()


def archive(folder: Path, **files: str) -> bytes:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.json").write_text(text)
    return pack(folder)


async def build_limited(
    helpers: Helpers,
    content: bytes,
    limits: TaskLimits = SIXTY_SECONDS,
    *,
    done: Steps = NO_STEPS,
    small: ArchiveLimits = SMALL,
    **more: Any,
) -> Built:
    limited = LimitedBuild(HelperTasks(helpers, Places(2), limits, **more), small)
    return await limited(content, SPEC, ARTIFACT, RESOURCE, None, done)


async def test_a_helper_builds_what_is_built_here(helpers: Helpers, tmp_path: Path) -> None:
    content, done = archive(tmp_path / "files", flags=FLAG), steps({"WORD": "hello"})
    found = await build_limited(helpers, content, done=done, small=ALWAYS)
    assert found == build(content, SPEC, ARTIFACT, RESOURCE, None, done)
    assert found.composition.flag_set.flags["banner"].variants == {"on": "hello"}


async def test_a_small_set_needs_no_helper(helpers: Helpers, tmp_path: Path) -> None:
    found = await build_limited(helpers, archive(tmp_path / "files", flags=FLAG), done=steps({"WORD": "a"}))
    assert found.manifests
    assert helpers.started == 0


async def test_a_small_set_with_tests_is_built_in_a_helper(helpers: Helpers, tmp_path: Path) -> None:
    test = '{"tests": [{"name": "b", "flag": "banner", "expect": {"variant": "off"}}]}'
    content = archive(tmp_path / "files", **{"flags": FLAG.replace("${WORD}", "a"), "flags.flagtest": test})
    found = await build_limited(helpers, content)
    assert [problem.code for problem in found.composition.problems] == ["test-failed"]
    assert helpers.started == 1


async def test_documents_that_hold_too_much_together_are_refused_in_a_helper(
    helpers: Helpers, tmp_path: Path
) -> None:
    bomb = archive(tmp_path / "bomb", **{f"part-{number}": large_document(number) for number in range(2)})
    found = await build_limited(helpers, bomb)
    assert not found.composition.accepted
    messages = {each.code: each.message for each in found.composition.problems}
    assert messages["too-large"] == "the flag set holds more than 2000000 values; make several of it"
    assert helpers.started == 1


async def test_what_needs_too_much_memory_costs_its_helper_and_the_limit_is_named(
    helpers: Helpers, tmp_path: Path
) -> None:
    pid = await helpers.run(TaskLimits(), os.getpid)
    bomb = archive(tmp_path / "bomb", flags=large_document(1))
    with pytest.raises(
        Stalled, match=r"main@sha1:abc needs more memory than it may use \(\d+ bytes\)"
    ) as met:
        await build_limited(helpers, bomb, TaskLimits(memory_bytes=30_000_000))
    assert met.value.reason == "LimitExceeded"
    sound = archive(tmp_path / "sound", flags=FLAG.replace("${WORD}", "a"))
    assert (await build_limited(helpers, sound, small=ALWAYS)).composition.accepted
    assert await helpers.run(TaskLimits(), os.getpid) != pid


async def test_what_takes_too_long_is_ended_and_the_limit_is_named(helpers: Helpers, tmp_path: Path) -> None:
    content = archive(tmp_path / "files", flags=large_document(1))
    with pytest.raises(Stalled, match=r"needs more CPU time than it may use \(0\.1 seconds\)"):
        await build_limited(helpers, content, TaskLimits(cpu_seconds=0.1, memory_bytes=2**31))


async def test_a_damaged_archive_is_refused_wherever_it_is_built(helpers: Helpers) -> None:
    with pytest.raises(Setback) as refused:
        await build_limited(helpers, b"no archive")
    assert refused.value.reason == "ArchiveRefused"


async def test_a_build_that_outlasts_its_deadline_is_ended_and_its_helper_replaced(
    helpers: Helpers, tmp_path: Path
) -> None:
    pid = await helpers.run(TaskLimits(), os.getpid)
    content = archive(tmp_path / "files", flags=large_document(1))
    with pytest.raises(Failed, match=r"main@sha1:abc took longer than 0\.05 seconds") as met:
        await build_limited(helpers, content, TaskLimits(memory_bytes=2**31), seconds=0.05)
    assert met.value.reason == "ReadTimedOut"
    assert await helpers.run(TaskLimits(), os.getpid) != pid


async def test_a_set_with_keys_is_built_in_a_helper_however_small_it_is(
    helpers: Helpers, tmp_path: Path
) -> None:
    decryption = {"provider": "sops", "secretRef": {"name": "keys"}}
    spec = read(FlagSetSpec, {"sourceRef": {"kind": "FlagSource", "name": "a"}, "decryption": decryption})
    limited = LimitedBuild(HelperTasks(helpers, Places(2)))
    await limited(
        archive(tmp_path / "files", flags=FLAG.replace("$", "")), spec, ARTIFACT, RESOURCE, None, NO_STEPS
    )
    assert helpers.started == 1
