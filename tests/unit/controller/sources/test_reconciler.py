"""A FlagSource's life: what its source answers and what its status then says; storage is real, Git is
played.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from controller.api.meta import ObjectKey, Resource
from controller.app.namespace_limits import artifact_quota, limits_of
from controller.app.settings import ControllerSettings
from controller.artifacts.archive import SKIPPED_FILE, take_skipped, unpack
from controller.artifacts.storage import Storages
from controller.runtime.cache import Cache
from controller.runtime.setbacks import Failed, Setback, Stalled, Waiting
from controller.sources.backend import (
    NOTHING_ACCEPTED,
    AcceptedRevision,
    Fetched,
    FetchRequest,
    Revision,
    Unverified,
)
from controller.sources.freshness import Freshness, PendingPushes
from controller.sources.reconciler import SourceReconciler
from evaluator.host import durable
from tests.statuses import find
from tests.volumes import fill, small_volume
from tests.worlds.stages import take_turn

if TYPE_CHECKING:
    from pathlib import Path

    from controller.api.source_spec import GitSpec
    from controller.runtime.result import Settled

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEY = ObjectKey("FlagSource", "apps", "flags")
FIRST, SECOND = "12" * 20, "34" * 20
SPEC: dict[str, Any] = {"interval": "10m", "git": {"url": "https://h/r"}}
GIT_DOWN = Failed("GitOperationFailed", "https://h/r: could not connect")


@dataclass
class Played:
    """A source with answers that the test sets; also the factory that opens it."""

    commit: str = FIRST
    files: dict[str, str] = field(default_factory=lambda: {"flags.json": "{}"})
    skipped: tuple[str, ...] = ()
    signer: str = ""
    shows_every_push: bool = True
    epoch: str = ""
    lineage: str = ""
    opening: Setback | None = None
    resolving: Setback | None = None
    fetching: Setback | None = None
    fetched: int = 0
    looks: list[Freshness] = field(default_factory=list)
    forgotten: list[ObjectKey] = field(default_factory=list)

    async def open(self, spec: GitSpec, look: FetchRequest) -> Played:
        self.looks.append(look.freshness)
        if self.opening is not None:
            raise self.opening
        return self

    async def resolve(self) -> Revision:
        if self.resolving is not None:
            raise self.resolving
        return Revision("main", f"sha1:{self.commit}")

    async def fetch(
        self, revision: Revision, into: Path, accepted: AcceptedRevision = NOTHING_ACCEPTED
    ) -> Fetched:
        self.fetched += 1
        if self.fetching is not None:
            raise self.fetching
        for name, text in self.files.items():
            (into / name).write_text(text)
        summary = "commit 'Turn it on' of Ada <ada@example.com>"
        metadata = {"flagstaff.dev/author": "Ada <ada@example.com>"}
        if self.signer:
            metadata["flagstaff.dev/verified-by"] = self.signer
        return Fetched(revision, metadata, summary, self.skipped)

    def forget(self, key: ObjectKey) -> None:
        self.forgotten.append(key)

    async def sweep(self, now: datetime) -> None:
        """Nothing is kept."""

    async def make_room(self) -> bool:
        return False

    async def close(self) -> None:
        """Nothing is held."""


class Life:
    """One FlagSource, as the API server would keep it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.source = Played()
        self.spec = SPEC
        self.status: dict[str, Any] = {"observedGeneration": -1}
        self.expected = PendingPushes()
        self.now = NOW
        self.restart()

    def restart(self) -> None:
        """The process is another; disk and object are the same."""
        self.storages = Storages(self.root, "http://artifacts/")
        self.reconciler = SourceReconciler({"git": self.source}, self.storages, self.expected, lambda: 0.5)

    def quotas(self, *found: Resource, artifact_bytes: int = 0) -> None:
        """Another process, which has these, beside other sources."""
        objects = Cache()
        for each in found:
            objects.learn(each)
        settings = ControllerSettings(quota_artifact_bytes=artifact_bytes)
        self.restart()
        self.reconciler = replace(self.reconciler, stored=artifact_quota(limits_of(settings), objects))

    async def look(self, *, written: bool = True, **more: Any) -> Settled:
        resource = Resource(KEY, "uid", 1, "1", spec=self.spec, status=self.status, **more)
        settled = (await take_turn(self.reconciler, resource, self.now)).settled
        if written:
            self.status = settled.status
        self.now += timedelta(minutes=1)
        return settled

    def condition(self, kind: str) -> tuple[str, str] | None:
        found = find(self.status, kind)
        return None if found is None else (found["status"], found["reason"])

    @property
    def folder(self) -> Path:
        return self.root / "flagsource/apps/flags"

    def stored_files(self) -> dict[str, bytes]:
        found = self.storages.read(self.status["artifact"]["path"])
        assert found is not None
        return unpack(found)


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path)


@pytest.fixture
async def settled(life: Life) -> Life:
    """A source with an artifact."""
    await life.look()
    return life


IN_STORAGE = ("True", "Succeeded")


async def test_a_new_source_gets_an_artifact(life: Life) -> None:
    after = await life.look()
    artifact = life.status["artifact"]
    assert artifact["revision"] == f"main@sha1:{FIRST}"
    assert artifact["url"] == f"http://artifacts/{artifact['path']}"
    assert artifact["lastUpdateTime"] == "2026-01-02T03:04:05Z"
    assert artifact["metadata"]["flagstaff.dev/author"] == "Ada <ada@example.com>"
    assert life.stored_files() == {"flags.json": b"{}"}
    assert life.condition("Ready") == life.condition("ArtifactInStorage") == IN_STORAGE
    assert [event.reason for event in after.events] == ["NewArtifact"]
    assert "'Turn it on' of Ada" in after.events[0].message


async def test_a_look_that_finds_nothing_new_fetches_and_says_nothing(settled: Life) -> None:
    before = settled.status
    after = await settled.look()
    assert (after.status, after.events, settled.source.fetched) == (before, (), 1)


async def test_the_next_look_is_an_interval_away_more_or_less(life: Life) -> None:
    delays = []
    for random in ([0.0], [0.5], [1.0]):
        life.reconciler = SourceReconciler({"git": life.source}, life.storages, life.expected, random.pop)
        delays.append((await life.look()).requeue_after)
    assert delays == pytest.approx([570.0, 600.0, 630.0])


async def test_a_new_commit_makes_a_new_artifact(settled: Life) -> None:
    settled.source.commit, settled.source.files = SECOND, {"flags.json": "2"}
    after = await settled.look()
    assert settled.status["artifact"]["revision"] == f"main@sha1:{SECOND}"
    assert settled.stored_files() == {"flags.json": b"2"}
    assert [event.reason for event in after.events] == ["NewArtifact"]


async def test_a_new_artifact_names_its_signer(life: Life) -> None:
    life.source.signer = "Ada <ada@example.com>\n(key 1)"
    (event,) = (await life.look()).events
    assert event.message.endswith(f"main@sha1:{FIRST}, signed by Ada <ada@example.com> (key 1)")
    assert event.metadata == {"flagstaff.dev/verified-by": "Ada <ada@example.com> (key 1)"}


async def test_a_commit_that_changes_no_file_makes_no_event(settled: Life) -> None:
    digest = settled.status["artifact"]["digest"]
    settled.source.commit = SECOND
    after = await settled.look()
    artifact = settled.status["artifact"]
    assert (artifact["digest"], artifact["revision"]) == (digest, f"main@sha1:{SECOND}")
    assert after.events == ()


def older(size: int) -> Resource:
    """A FlagSource that was there before."""
    key = ObjectKey("FlagSource", "apps", "older")
    return Resource(key, "older", 1, "1", status={"artifact": {"size": size}}, created="2000-01-01T00:00:00Z")


async def test_an_artifact_over_the_quota_is_not_stored_and_the_one_before_stays(settled: Life) -> None:
    size, before = settled.status["artifact"]["size"], settled.status["artifact"]
    settled.quotas(older(100), artifact_bytes=100 + size)
    settled.source.commit, settled.source.files = SECOND, {"flags.json": os.urandom(1000).hex()}
    await settled.look(created="2026-01-01T00:00:00Z")
    assert settled.condition("Ready") == ("False", "QuotaExceeded")
    assert settled.condition("ArtifactInStorage") == IN_STORAGE
    assert settled.status["artifact"] == before
    assert settled.stored_files() == {"flags.json": b"{}"}
    settled.source.commit = FIRST
    await settled.look(created="2026-01-01T00:00:00Z")
    assert settled.condition("Ready") == IN_STORAGE
    settled.quotas(older(100), artifact_bytes=100)
    await settled.look(created="2026-01-01T00:00:00Z")
    assert settled.condition("Ready") == ("False", "QuotaExceeded")


async def test_an_artifact_that_could_not_be_stored_leaves_its_room_to_others(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.quotas(Resource(KEY, "uid", 1, "1"), older(0), artifact_bytes=1000)
    life.source.files = {"flags.json": os.urandom(300).hex()}
    with monkeypatch.context() as full:
        full.setattr(durable, "write_file", no_space)
        await life.look()
    assert life.condition("Ready") == ("False", "StorageFull")
    life.reconciler.stored.require(older(0), 1000)
    await life.look()
    assert life.condition("Ready") == ("False", "QuotaExceeded")


async def test_a_file_that_was_left_out_is_named(life: Life) -> None:
    life.source.skipped = ("a: symlink, not followed",)
    after = await life.look()
    assert after.events[0].message.endswith("left out: a: symlink, not followed")


async def test_what_was_left_out_is_noted_in_the_artifact_unless_it_is_ignored(life: Life) -> None:
    life.source.skipped = ("a.json: symlink, not followed", "b.png: symlink, not followed")
    life.source.files = {"flags.json": "{}", SKIPPED_FILE: "forged"}
    await life.look()
    files = life.stored_files()
    assert take_skipped(files) == ("a.json: symlink, not followed",)
    assert set(files) == {"flags.json"}


async def test_nothing_that_a_repository_holds_is_taken_for_a_note_of_ours(life: Life) -> None:
    life.source.files = {"flags.json": "{}", SKIPPED_FILE: '["flags.json: not read"]'}
    await life.look()
    assert set(life.stored_files()) == {"flags.json"}


OUTAGES = {
    "git is down": GIT_DOWN,
    "credentials are revoked": Failed("AuthenticationFailed", "https://h/r: 401"),
    "the branch is deleted": Failed("ReferenceNotFound", "no branch 'main'"),
    "no answer in time": Failed("Timeout", "https://h/r: no answer within 60 seconds"),
}


@pytest.mark.parametrize("outage", OUTAGES.values(), ids=OUTAGES)
async def test_in_an_outage_the_artifact_stays_and_the_reason_is_reported_once(
    settled: Life, outage: Failed
) -> None:
    artifact = settled.status["artifact"]
    settled.source.resolving = outage
    first, second = await settled.look(), await settled.look()
    assert settled.condition("Ready") == ("False", outage.reason)
    assert settled.condition("ArtifactInStorage") == IN_STORAGE
    assert settled.status["artifact"] == artifact
    assert (first.retry, [event.severity for event in first.events], second.events) == (True, ["Warning"], ())


async def test_an_outage_before_the_first_artifact_promises_nothing(life: Life) -> None:
    life.source.resolving = GIT_DOWN
    await life.look()
    assert "artifact" not in life.status
    assert life.condition("ArtifactInStorage") is None


async def test_the_end_of_an_outage_is_reported(settled: Life) -> None:
    settled.source.resolving = GIT_DOWN
    await settled.look()
    settled.source.resolving = None
    after = await settled.look()
    assert settled.condition("Ready") == IN_STORAGE
    assert [event.reason for event in after.events] == ["Recovered"]
    assert settled.source.fetched == 1


async def test_a_restart_in_an_outage_keeps_the_artifact(settled: Life) -> None:
    settled.restart()
    settled.source.resolving = GIT_DOWN
    await settled.look()
    assert settled.condition("ArtifactInStorage") == IN_STORAGE
    assert settled.stored_files() == {"flags.json": b"{}"}


def lose_the_disk(life: Life) -> None:
    shutil.rmtree(life.root)


def lose_the_archive(life: Life) -> None:
    (life.root / life.status["artifact"]["path"]).unlink()


def damage_the_archive(life: Life) -> None:
    (life.root / life.status["artifact"]["path"]).write_bytes(b"damaged")


def damage_the_index(life: Life) -> None:
    (life.folder / "index.json").write_bytes(b"damaged")
    life.restart()


LOSSES = [lose_the_disk, lose_the_archive, damage_the_archive, damage_the_index]


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
async def test_a_lost_artifact_is_fetched_again_without_an_event(
    settled: Life, lose: Any, restarted: bool
) -> None:
    before = settled.status
    lose(settled)
    if restarted:
        settled.restart()
    after = await settled.look()
    assert (after.status, after.events, settled.source.fetched) == (before, (), 2)
    assert settled.stored_files() == {"flags.json": b"{}"}


@pytest.mark.parametrize("lose", LOSSES)
async def test_what_is_lost_in_an_outage_is_not_promised(settled: Life, lose: Any) -> None:
    lose(settled)
    settled.source.resolving = GIT_DOWN
    await settled.look()
    assert settled.condition("ArtifactInStorage") == ("False", "ArtifactGone")
    settled.source.resolving = None
    await settled.look()
    assert settled.condition("ArtifactInStorage") == IN_STORAGE


def no_space(*_: object, **_more: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_a_full_disk_keeps_the_artifact_before(settled: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    settled.source.commit, settled.source.files = SECOND, {"flags.json": "2"}
    with monkeypatch.context() as full:
        full.setattr(durable, "write_file", no_space)
        after = await settled.look()
    assert settled.condition("Ready") == ("False", "StorageFull")
    assert settled.condition("ArtifactInStorage") == IN_STORAGE
    assert (after.retry, settled.stored_files()) == (True, {"flags.json": b"{}"})
    await settled.look()
    assert settled.stored_files() == {"flags.json": b"2"}


async def test_older_archives_give_their_room_to_a_new_one_on_a_full_volume(tmp_path: Path) -> None:
    with small_volume(tmp_path / "volume") as volume:
        life = Life(volume / "artifacts")
        for number in range(4):
            life.source.commit = f"{number}" * 40
            life.source.files = {"flags.json": os.urandom(50_000).hex()}
            await life.look()
            assert life.condition("Ready") == IN_STORAGE
        fill(volume / "filler", left=20_000)
        for digit in "abc":
            life.source.commit = digit * 40
            life.source.files = {"flags.json": os.urandom(50_000).hex()}
            await life.look()
            assert life.condition("Ready") == IN_STORAGE
            assert life.stored_files() == {"flags.json": life.source.files["flags.json"].encode()}


async def test_an_archive_for_which_there_is_no_room_at_all_leaves_the_last_one(tmp_path: Path) -> None:
    with small_volume(tmp_path / "volume") as volume:
        life = Life(volume / "artifacts")
        await life.look()
        fill(volume / "filler", left=20_000)
        life.source.commit, life.source.files = SECOND, {"flags.json": os.urandom(50_000).hex()}
        await life.look()
        assert life.condition("Ready") == ("False", "StorageFull")
        assert life.stored_files() == {"flags.json": b"{}"}


async def test_a_full_disk_is_reported(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: no_space())
    await life.look()
    assert life.condition("Ready") == ("False", "StorageFull")


async def test_a_storage_that_cannot_be_opened_is_reported(life: Life) -> None:
    life.root.joinpath("flagsource").write_text("in the way")
    assert (await life.look()).retry
    assert life.condition("Ready") == ("False", "StorageFailed")


async def test_no_files_stay_behind(life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trees").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "trees"))
    await life.look()
    life.source.commit, life.source.fetching = SECOND, GIT_DOWN
    await life.look()
    assert life.source.fetched == 2
    assert not list((tmp_path / "trees").iterdir())


async def test_a_process_killed_before_it_wrote_the_status_stores_the_same_again(life: Life) -> None:
    killed = await life.look(written=False)
    life.restart()
    await life.look()
    first, again = killed.status["artifact"], life.status["artifact"]
    # It was observed anew: no status showed the first time.
    for moment in (first, again):
        moment["lastUpdateTime"] = moment["metadata"]["flagstaff.dev/observed-at"] = ""
    assert again == first


async def test_a_revision_was_observed_when_the_look_began_that_found_it(life: Life) -> None:
    await life.look()
    first = life.status["artifact"]["metadata"]["flagstaff.dev/observed-at"]
    await life.look()
    assert life.status["artifact"]["metadata"]["flagstaff.dev/observed-at"] == first
    life.source.commit = SECOND
    await life.look()
    assert life.status["artifact"]["metadata"]["flagstaff.dev/observed-at"] > first


async def test_a_process_killed_before_it_reported_a_second_artifact_keeps_the_first(settled: Life) -> None:
    settled.source.commit, settled.source.files = SECOND, {"flags.json": "2"}
    await settled.look(written=False)
    settled.restart()
    settled.source.resolving = GIT_DOWN
    await settled.look()
    assert settled.condition("ArtifactInStorage") == IN_STORAGE
    assert settled.stored_files() == {"flags.json": b"{}"}


async def test_other_patterns_make_another_artifact_of_the_same_commit(settled: Life) -> None:
    settled.source.files = {"flags.json": "{}", "README.md": "x"}
    settled.spec = SPEC | {"ignore": "*.md\n*.txt\n"}
    await settled.look()
    assert settled.status["observedIgnore"] == "*.md\n*.txt\n"
    settled.spec = SPEC
    await settled.look()
    assert settled.stored_files().keys() == {"flags.json", "README.md"}
    assert "observedIgnore" not in settled.status


async def test_what_a_source_itself_ignores_is_no_part_of_its_artifact(life: Life) -> None:
    life.source.files = {".sourceignore": "*.md\n/old.json", "README.md": "", "flags.json": "{}"}
    life.source.skipped = ("old.json: too large", "new.json: too large")
    await life.look()
    files = life.stored_files()
    assert take_skipped(files) == ("new.json: too large",)
    assert files.keys() == {".sourceignore", "flags.json"}


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"interval": "soon", "git": {"url": "https://h/r"}}, "spec.interval"),
        ({"interval": "1m"}, "spec: set exactly one of git, oci, bucket"),
        ({"interval": "1m", "git": {"url": "h:r"}}, "spec.git.url"),
    ],
)
async def test_a_spec_that_cannot_be_read_stalls_and_names_its_field(
    settled: Life, spec: dict[str, Any], named: str
) -> None:
    settled.spec = spec
    after = await settled.look()
    assert settled.condition("Stalled") == ("True", "InvalidSpec")
    assert named in after.events[0].message
    assert (after.retry, after.requeue_after) == (False, None)
    assert settled.condition("ArtifactInStorage") == IN_STORAGE


async def test_what_only_its_user_can_change_is_not_looked_at_again(life: Life) -> None:
    life.source.opening = Stalled("URLInvalid", "no such place")
    after = await life.look()
    assert (after.retry, after.requeue_after) == (False, None)


@pytest.mark.parametrize("step", ["resolving", "fetching"])
@pytest.mark.parametrize(
    "setback", [Stalled("LimitExceeded", "too much"), Waiting("EmptyRepository", "nothing yet")]
)
async def test_what_a_commit_can_put_right_is_looked_at_again(
    life: Life, setback: Setback, step: str
) -> None:
    setattr(life.source, step, setback)
    after = await life.look()
    assert life.condition("Ready") == ("False", setback.reason)
    assert after.requeue_after == 600.0


async def test_a_commit_that_was_pushed_is_looked_for_until_it_is_seen(settled: Life) -> None:
    settled.expected.expect(KEY, SECOND, settled.now)
    after = await settled.look()
    assert (after.requeue_after, after.events) == (0.25, ())
    settled.source.commit = SECOND
    assert (await settled.look()).requeue_after == 600.0


async def test_while_a_commit_is_expected_only_the_newest_will_do(settled: Life) -> None:
    settled.now += timedelta(hours=1)
    settled.expected.expect(KEY, SECOND, settled.now)
    await settled.look()
    newest = settled.source.looks[-1]
    assert newest.since == newest.now


async def test_a_source_that_is_gone_leaves_nothing(settled: Life) -> None:
    settled.expected.expect(KEY, SECOND, settled.now)
    settled.reconciler.forget(KEY)
    settled.storages.close()
    assert not settled.folder.exists()
    assert settled.source.forgotten == [KEY]
    assert not settled.expected.is_waiting(KEY, settled.now)


async def test_a_disk_that_fails_while_files_are_packed_is_reported(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.sources.reconciler.pack", no_space)
    await life.look()
    assert life.condition("Ready") == ("False", "StorageFull")


def test_reconciling_sources_loads_no_library_of_a_backend() -> None:
    script = "import controller.sources.reconciler, sys; print(sorted({'git', 'pygit2'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


async def test_what_cannot_be_verified_is_not_stored(settled: Life) -> None:
    settled.source.commit, settled.source.files = SECOND, {"flags.json": "2"}
    settled.source.fetching = Unverified("NotSigned", "by nobody who is trusted")
    await settled.look()
    assert settled.condition("Ready") == ("False", "NotSigned")
    assert settled.condition("SourceVerified") == ("False", "NotSigned")
    assert settled.stored_files() == {"flags.json": b"{}"}


async def test_a_spec_without_a_provider_is_refused(settled: Life) -> None:
    settled.spec = {"interval": "10m"}
    await settled.look()
    assert settled.condition("Stalled") == ("True", "InvalidSpec")


async def test_a_backend_that_verifies_nothing_is_refused_where_verification_is_asked_for(life: Life) -> None:
    life.spec = {**SPEC, "verify": {"secretRef": {"name": "keys"}}}
    await life.look()
    assert life.condition("Ready") == ("False", "InvalidSpec")
    assert life.source.fetched == 0
    life.source.epoch = "sha256:1"
    await life.look()
    assert life.condition("Ready") == IN_STORAGE
