"""What holds under `flagstaff up` holds in a cluster: the same repositories through both have one outcome."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from controller.api import flagset, flagsource
from controller.api.meta import API_VERSION, ObjectKey, Resource
from controller.artifacts.storage import Storages
from controller.delivery.problem_text import problem_list
from controller.flagsets.fetch import ArtifactReader
from controller.flagsets.reconciler import FlagSetReconciler
from controller.local.local_events import RevisionBuilt
from controller.local.local_objects import NAMESPACE as LOCAL
from controller.local.local_options import LocalOptions
from controller.local.local_stages import STAGES, LocalStages, open_stages
from controller.sources.freshness import PendingPushes
from controller.sources.git_factory import GitFactory
from controller.sources.reconciler import SourceReconciler
from evaluator.flags.model import DIGEST_KEY
from tests.repositories import Repository
from tests.worlds.flagsets import BROKEN, CONFIGURATION, START, flag
from tests.worlds.objects import NAMESPACE
from tests.worlds.stages import RecordingCluster, take_turn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from controller.runtime.cache import Cache
    from controller.runtime.loop import Reconciler

if TYPE_CHECKING:
    Step = Callable[[Repository], object]


@dataclass(frozen=True)
class Outcome:
    """What one commit came to."""

    flags: dict[str, Any] | None
    digest: str | None
    held: list[str]
    problems: list[dict[str, Any]]


def delivered_flags(objects: Cache, namespace: str) -> tuple[dict[str, Any] | None, str | None]:
    """Flags and digest of the FeatureFlagConfiguration."""
    found = objects.get(ObjectKey(CONFIGURATION, namespace, "flags"))
    return (None, None) if found is None else (found.spec["flagSpec"]["flags"], found.annotations[DIGEST_KEY])


class InCluster:
    """The reconcilers as the controller puts them together, over a fake API server."""

    def __init__(self, folder: Path, git: GitFactory, repository: Repository, paths: tuple[str, ...]) -> None:
        self.cluster, self.now = RecordingCluster(STAGES), START
        storages = Storages(folder, "http://artifacts")
        reader = ArtifactReader(storages.read)
        objects = self.cluster.objects
        self.source = SourceReconciler({"git": git}, storages, PendingPushes(), random.random)
        self.flag_set = FlagSetReconciler(objects, reader, self.cluster.impersonate, random.random)
        git_spec = {"url": repository.path.as_uri(), "ref": {"branch": "main"}}
        self.put(flagsource.KIND, {"interval": "1m", "git": git_spec})
        self.put(
            flagset.KIND, {"sourceRef": {"kind": flagsource.KIND, "name": "flags"}, "paths": list(paths)}
        )

    def put(self, kind: str, spec: dict[str, Any]) -> None:
        self.cluster.put(
            {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": "flags"}, "spec": spec}
        )

    async def outcome(self, commit: str) -> Outcome:
        await self.look(flagsource.KIND, self.source)
        status = (await self.look(flagset.KIND, self.flag_set)).status
        assert status["lastAttemptedRevision"] == f"main@sha1:{commit}"
        flags, digest = delivered_flags(self.cluster.objects, NAMESPACE)
        if status.get("lastAppliedRevision") == f"main@sha1:{commit}":
            held = [each["name"] for each in status["held"]]
        else:
            # What is refused as a whole leaves all that is served where it was.
            held = sorted(flags or ())
        return Outcome(flags, digest, held, status["problems"])

    async def look(self, kind: str, reconciler: Reconciler) -> Resource:
        """One turn of the loop."""
        self.now += timedelta(seconds=1)
        resource = self.cluster.the(kind, "flags")
        turn = await take_turn(reconciler, resource, self.now)
        return self.cluster.set_status(resource, turn.status)


async def local_outcome(stages: LocalStages, events: AsyncIterator[Any], commit: str) -> Outcome:
    async for event in events:
        assert isinstance(event, RevisionBuilt) or not event.reason
        if isinstance(event, RevisionBuilt):
            assert event.revision == f"main@sha1:{commit}"
            flags, digest = delivered_flags(stages.objects, LOCAL)
            made = event.composition
            return Outcome(
                flags,
                digest,
                list(made.held),
                [each.model_dump(exclude_none=True) for each in problem_list(made.problems)],
            )
    raise AssertionError


def document(**flags: Any) -> str:
    """One with a flagSetId: without, a FlagSet of a cluster has one by default."""
    return json.dumps({"metadata": {"flagSetId": "checkout"}, "flags": flags}, indent=1)


def files(**more: str) -> Step:
    def step(repository: Repository) -> None:
        for name, text in more.items():
            repository.write(name.replace("__", "."), text)

    return step


def link(repository: Repository) -> None:
    (repository.path / "more.json").symlink_to("flags.json")


def link_folder(repository: Repository) -> None:
    repository.write("real/flags.json", document(a=flag(), b=flag()))
    (repository.path / "prod").symlink_to("real")


def link_outside(repository: Repository) -> None:
    (repository.path / "more.json").symlink_to("../../elsewhere.json")


def submodule(repository: Repository) -> None:
    inner = Repository(repository.path.parent / "inner")
    inner.write("flags.json", document(a=flag(), b=flag()))
    inner.commit()
    source = inner.path.as_uri()
    repository.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", source, "prod")


def config_map(repository: Repository) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"flags.json": document(a=flag()), "x": "y"}}
    repository.write("map.json", json.dumps(manifest))


def huge(repository: Repository) -> None:
    with (repository.path / "huge.json").open("wb") as file:
        file.truncate(17 * 1024**2)


def layers(repository: Repository) -> None:
    repository.write("base/flags.json", document(a=flag(), b=flag()))
    repository.write("overlays/eu/flags.json", json.dumps({"flags": {"b": {"defaultVariant": "on"}}}))


def worse_layer(repository: Repository) -> None:
    repository.write("overlays/eu/flags.json", json.dumps({"flags": {"b": {"defaultVariant": "no such"}}}))


def revert(repository: Repository) -> None:
    repository.git("checkout", "-q", "HEAD~1", "--", ".")


def write_ignored(repository: Repository) -> None:
    repository.write("drafts/flags.json", "{")
    repository.write(".sourceignore", "drafts/\n")


def shared_rule(repository: Repository, tier: str, **more: Any) -> None:
    ruled = {**flag(), "targeting": {"if": [{"$ref": "rich"}, "on"]}}
    evaluators = {"rich": {"==": [{"var": "tier"}, tier]}}
    content = json.loads(document(a=ruled, b=flag(), **more)) | {"$evaluators": evaluators}
    repository.write("flags.json", json.dumps(content))


GOOD = files(flags__json=document(a=flag(), b=flag()))
BETTER = files(flags__json=document(a=flag("on"), b=flag()))
BAD_FLAG = files(flags__json=document(a=BROKEN, b=flag("on")))
MANY = files(flags__json=document(**{f"f{number}": flag() for number in range(12)}))
YAML = """metadata: {flagSetId: checkout}
flags:
  a: {state: ENABLED, variants: {"off": 0, many: 0x10}, defaultVariant: "off"}
"""
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
TOP = (".",)
ROWS: dict[str, tuple[tuple[str, ...], tuple[Step, ...]]] = {
    "a good commit": (TOP, (GOOD, BETTER)),
    "a bad flag": (TOP, (GOOD, BAD_FLAG)),
    "a bad flag at first": (TOP, (BAD_FLAG, GOOD)),
    "a bad file": (TOP, (GOOD, files(flags__json="{"))),
    "a bad file at first": (TOP, (files(flags__json="{"), GOOD)),
    "overlay layers": (("base", "overlays/eu"), (layers, worse_layer)),
    "a symlink": (TOP, (GOOD, link)),
    "a symlink to a folder": (("prod",), (link_folder,)),
    "a symlink on the way": (("prod/*.json",), (link_folder,)),
    "a symlink beside what is read": (("real",), (link_folder,)),
    "a symlink that leaves the repository": (TOP, (GOOD, link_outside)),
    "a submodule": (("prod",), (submodule,)),
    "a submodule beside what is read": (TOP, (GOOD, submodule)),
    "a pointer of Git LFS": (TOP, (GOOD, files(flags__json=POINTER))),
    "a pointer of Git LFS beside": (TOP, (GOOD, files(more__yaml=POINTER))),
    "a ConfigMap": (TOP, (config_map,)),
    "a file that is too large": (TOP, (GOOD, huge)),
    "a removal of most flags": (TOP, (MANY, files(flags__json=document(f1=flag())))),
    "a path that matches nothing": (("flags.jsn",), (GOOD,)),
    "a bad flag that is reverted": (TOP, (GOOD, BAD_FLAG, revert)),
    "a change that is reverted": (TOP, (GOOD, BETTER, revert)),
    "an ignored folder": (("./**",), (GOOD, write_ignored)),
    "the same key twice": (TOP, (GOOD, files(more__json=document(a=flag("on"))))),
    "YAML": (TOP, (files(flags__yaml=YAML),)),
    "a shared rule that changes beside a bad flag": (
        TOP,
        (lambda made: shared_rule(made, "gold"), lambda made: shared_rule(made, "silver", c=BROKEN)),
    ),
    "a commit of the readme only": (TOP, (GOOD, files(README__md="hello"))),
}


@pytest.fixture
async def git(tmp_path: Path) -> AsyncIterator[GitFactory]:
    async def secret(namespace: str, name: str, account: str | None) -> None:
        raise AssertionError(namespace, name)

    made = GitFactory(secret, tmp_path / "mirrors", allow_local=True)
    yield made
    await made.close()


@pytest.mark.parametrize(("paths", "steps"), ROWS.values(), ids=ROWS.keys())
async def test_a_repository_comes_to_the_same_in_both(
    tmp_path: Path, git: GitFactory, paths: tuple[str, ...], steps: tuple[Step, ...]
) -> None:
    repository = Repository(tmp_path / "repository")
    in_cluster = InCluster(tmp_path / "artifacts", git, repository, paths)
    options = LocalOptions(str(repository.path), "main", paths, prune_guard=True, interval=0.2)
    first, *others = steps
    first(repository)
    commit = repository.commit()
    async with open_stages(options) as stages:
        running, events = asyncio.create_task(stages.run()), stages.events()
        assert await local_outcome(stages, events, commit) == await in_cluster.outcome(commit)
        for step in others:
            step(repository)
            commit = await asyncio.to_thread(repository.commit)
            assert await local_outcome(stages, events, commit) == await in_cluster.outcome(commit)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
