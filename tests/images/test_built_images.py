"""Both images, built of the Dockerfile and started (`make images`)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.clients.asking import served_value
from tests.clients.attacks import resident_megabytes
from tests.clients.event_log import EventLog
from tests.clients.up import banner
from tests.images.building import BASE, Images, image_store, install_tools, make_base, total_bytes
from tests.images.containers import command
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

USER: Final = "65532:65532"
COMMIT: Final = "0123456789abcdef0123456789abcdef01234567"
EPOCH: Final = "1700000000"
BUILT: Final = "(commit 0123456789ab, built 2023-11-14T22:13:20Z)"
MOST_MEGABYTES: Final = {"evaluator": 90, "controller": 260}
"""Above the base."""
MOST_RESIDENT: Final = 42
"""Megabytes of an evaluator with one flag, which is below 41 outside an image."""
FREE_PORTS: Final = [f"--{name}port=0" for name in ("", "management-", "sync-", "ofrep-")]


class Image:
    """Programs of one image, of whose store the files are mounted."""

    def __init__(self, root: Path, settings: dict[str, Any], shared: Path) -> None:
        self.root, self.settings, self.shared = root, settings, shared

    def run(self, *words: str, entry: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one to its end."""
        started = command(self.root, self.settings, self.shared, *words, entry=entry)
        return subprocess.run(started, capture_output=True, text=True, check=False, timeout=120)

    @contextlib.contextmanager
    def serve(self, *words: str) -> Iterator[tuple[int, EventLog]]:
        """The process id of one that serves, and its JSON lines."""
        started = command(self.root, self.settings, self.shared, *words)
        process = subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        events = EventLog(json.loads(line) for line in process.stdout or () if line.startswith("{"))
        try:
            yield process.pid, events
        finally:
            # Whoever changes the user does not die with the parent any more.
            with contextlib.suppress(OSError, ValueError):
                os.kill(child(process.pid), signal.SIGKILL)
            process.wait()
            events.close()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture(scope="module")
def images() -> Iterator[Images]:
    install_tools()
    with image_store() as store:
        store.add_base(make_base())
        for target in MOST_MEGABYTES:
            store.build(target, COMMIT=COMMIT, SOURCE_DATE_EPOCH=EPOCH)
        yield store


@pytest.fixture(scope="module", params=MOST_MEGABYTES)
def image(
    images: Images, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Image]]:
    with start(images, request.param, tmp_path_factory.mktemp("shared")) as opened:
        yield request.param, opened


@contextlib.contextmanager
def start(images: Images, name: str, shared: Path) -> Iterator[Image]:
    shared.chmod(0o755)
    with images.mount(f"localhost/{name}") as root:
        yield Image(root, images.configuration(f"localhost/{name}"), shared)


def test_an_image_names_a_user_without_rights_and_writes_nothing(image: tuple[str, Image]) -> None:
    name, opened = image
    done = opened.run("sh", "-c", "id -u; id -g; grep CapEff /proc/self/status; touch x", entry=False)
    assert opened.settings["User"] == USER, name
    assert done.stdout.split() == ["65532", "65532", "CapEff:", "0000000000000000"]
    assert "Read-only file system" in done.stderr


def test_an_image_tells_the_commit_and_date_it_was_built_with(image: tuple[str, Image]) -> None:
    name, opened = image
    done = opened.run("version" if name == "evaluator" else "--version")
    assert done.stdout.strip().endswith(BUILT), done.stdout + done.stderr


def test_an_image_stays_small(
    images: Images, image: tuple[str, Image], capsys: pytest.CaptureFixture[str]
) -> None:
    name, opened = image
    with images.mount(BASE) as base:
        megabytes = (total_bytes(opened.root) - total_bytes(base)) / 1e6
    with capsys.disabled():
        print(f"\n{name}: {megabytes:.0f} MB above the base (at most {MOST_MEGABYTES[name]})")
    assert megabytes <= MOST_MEGABYTES[name]


def test_the_evaluators_image_answers_an_evaluation_in_little_memory(
    images: Images, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flags.json").write_text(banner("party"), encoding="utf-8")
    words = ("start", "--uri=file:/mnt/flags.json", "--host=127.0.0.1", "--log-format=json", *FREE_PORTS)
    with start(images, "evaluator", tmp_path) as opened, opened.serve(*words) as (process, events):
        listening = events.wait(lambda event: event["message"] == "listening", lambda: events.all)
        events.wait(lambda event: event["message"] == "flags served", lambda: events.all)
        assert served_value(listening["ofrep"]) == "Hooray"
        megabytes = resident_megabytes(child(process))
    with capsys.disabled():
        print(f"\nevaluator: {megabytes:.0f} MB of memory")
    assert megabytes < MOST_RESIDENT


def test_an_image_serves_by_compiled_code_and_has_no_compiler(image: tuple[str, Image]) -> None:
    code = "from evaluator.http import h2_connection; print(h2_connection.__file__)"
    opened = image[1]
    assert opened.run("python", "-c", code, entry=False).stdout.strip().endswith(".so")
    assert opened.run("sh", "-c", "command -v gcc cc", entry=False).stdout == ""


def test_the_controllers_image_follows_a_repository_over_git(images: Images, tmp_path: Path) -> None:
    Repository(tmp_path / "flags").commit(flags__json=banner("party"))
    for file in (tmp_path, *tmp_path.rglob("*")):
        os.chown(file, *map(int, USER.split(":")))
    words = ("up", "file:///mnt/flags", "--json", *FREE_PORTS)
    with start(images, "controller", tmp_path) as opened, opened.serve(*words) as (_, events):
        ready = events.wait(lambda event: event["event"] == "ready", lambda: events.all)
        assert served_value(ready["ports"]["ofrep"]) == "Hooray"


@pytest.mark.parametrize("verb", ["fleet", "events"])
def test_the_controllers_image_has_what_verbs_of_a_cluster_need(
    images: Images, tmp_path: Path, verb: str
) -> None:
    """The image leaves out parts of the client's library."""
    configuration = {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]}
    context = {"name": "c", "context": {"cluster": "c", "user": ""}}
    kubeconfig = json.dumps({**configuration, "contexts": [context], "current-context": "c"})
    (tmp_path / "kubeconfig").write_text(kubeconfig, encoding="utf-8")
    with start(images, "controller", tmp_path) as opened:
        done = opened.run("env", "KUBECONFIG=/mnt/kubeconfig", "flagstaff", verb, entry=False)
    assert "127.0.0.1" in done.stderr
    assert done.returncode == 3


def child(process: int) -> int:
    """What `unshare` started. Raises OSError or ValueError where it has ended."""
    return int(Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii"))
