from __future__ import annotations

import errno
import json
import logging
import os
import random
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.flagsets.compose import Provenance, compose
from controller.flagsets.lastgood import LastGood
from controller.runtime.setbacks import Failed
from evaluator.flags.model import Flag, FlagSet, State

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

WRITER = """
import itertools, sys
from datetime import UTC, datetime
from pathlib import Path
from controller.flagsets.lastgood import LastGood
from evaluator.flags.model import Flag, FlagSet, State
now = datetime(2026, 1, 2, tzinfo=UTC)
for number in itertools.count():
    flags = {f"f{at}": Flag(f"f{at}", State.ENABLED, {"on": number}, "on") for at in range(2000)}
    LastGood(Path(sys.argv[1])).save(FlagSet(flags), now)
    print(number, flush=True)
"""


def made(broken: bool = False, default: str = "off", previous: FlagSet | None = None) -> FlagSet:
    variants = {"on": 1, "off": 0.5, "half": -2}
    flags: dict[str, Any] = {
        "a": {
            "state": "ENABLED",
            "variants": {"x": True},
            "defaultVariant": "?" if broken else "x",
        },
        "b": {
            "state": "DISABLED",
            "variants": variants,
            "defaultVariant": default,
            "targeting": {"if": [{"$ref": "staff"}, "on", None]},
            "metadata": {"team": "ünï", "n": 3},
        },
        "c": {"state": "ENABLED", "variants": {"o": {"deep": [1, None]}}, "targeting": None},
    }
    document = {"flags": flags, "$evaluators": {"staff": {"==": [{"var": "t"}, 1]}}}
    provenance = Provenance(f"main@sha1:{default}", "Ada <a@example.com>", "2026-01-02T03:04:05Z")
    tree = {"flags.json": json.dumps(document).encode()}
    return compose(tree, ["."], provenance=provenance, previous=previous, lenient=True).flag_set


def test_what_is_saved_is_loaded_by_another_process_equal(tmp_path: Path) -> None:
    flag_set = made()
    LastGood(tmp_path / "state" / "flagset.json").save(flag_set, NOW)
    saved = LastGood(tmp_path / "state" / "flagset.json").load()
    assert saved is not None
    assert saved.flag_set == flag_set
    assert (saved.revision, saved.saved_at) == ("main@sha1:off", NOW)


def test_a_held_flag_is_still_marked_after_a_restart(tmp_path: Path) -> None:
    held = made(broken=True, default="on", previous=made())
    LastGood(tmp_path / "last").save(held, NOW)
    saved = LastGood(tmp_path / "last").load()
    assert saved is not None
    assert saved.flag_set.flags["a"].metadata["flagstaff.dev/held-from"] == "main@sha1:off"


@pytest.mark.parametrize("folder", [".", "missing"])
def test_nothing_saved_is_nothing_loaded(tmp_path: Path, folder: str) -> None:
    assert LastGood(tmp_path / folder / "last").load() is None


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    LastGood(tmp_path / "state" / "last").save(made(), NOW)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "state" / "last").stat().st_mode & 0o777 == 0o600


@settings(max_examples=150)
@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255), st.booleans())
def test_a_changed_byte_or_a_cut_is_never_served_as_something_else(
    tmp_path_factory: pytest.TempPathFactory, at: int, flip: int, cut: bool
) -> None:
    path = tmp_path_factory.mktemp("state") / "last"
    LastGood(path).save(made(), NOW)
    content = bytearray(path.read_bytes())
    at %= len(content)
    if cut:
        del content[at:]
    else:
        content[at] ^= flip
    path.write_bytes(content)
    saved = LastGood(path).load()
    assert saved is None or (saved.flag_set, saved.saved_at) == (made(), NOW)
    assert path.exists() is (saved is not None)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"{}\n{}",
        b"[" * 512,
        b"[" * 200_000,
        b" " * 2_000_000,
        b"\xff\n",
        b'{"version": 2}\n',
        b"null\n",
    ],
)
def test_a_damaged_file_is_set_aside_told_and_not_served(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "last").write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert LastGood(tmp_path / "last").load() is None
    assert (tmp_path / "last.damaged").read_bytes() == content
    assert "last.damaged" in caplog.text


def test_a_full_disk_keeps_the_old_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last_good = LastGood(tmp_path / "last")
    last_good.save(made(), NOW)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(Failed) as failure:
            last_good.save(made(default="on"), NOW)
    assert failure.value.reason == "StorageFull"
    saved = last_good.load()
    assert saved is not None
    assert saved.revision == "main@sha1:off"


def full(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_file_that_cannot_be_read_is_a_failure_and_stays(tmp_path: Path) -> None:
    (tmp_path / "last").mkdir()
    with pytest.raises(Failed) as failure:
        LastGood(tmp_path / "last").load()
    assert failure.value.reason == "StorageFailed"


def test_a_kill_at_any_moment_leaves_a_whole_flag_set(tmp_path: Path) -> None:
    chance = random.Random(3)
    for _ in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "last")],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(chance.random() * 0.05)
        child.kill()
        printed = child.communicate()[0].split()
        saved = LastGood(tmp_path / "last").load()
        assert saved is not None
        values = {flag.variants["on"] for flag in saved.flag_set.flags.values()}
        assert len(values) == 1
        assert values.pop() >= int(printed[-1] if printed else 0)
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


def test_a_sound_file_that_holds_a_bad_flag_is_not_served(tmp_path: Path) -> None:
    bad = Flag("a", State.ENABLED, {"on": True}, default_variant="no such variant")
    LastGood(tmp_path / "last").save(FlagSet({"a": bad}), NOW)
    assert LastGood(tmp_path / "last").load() is None
    assert (tmp_path / "last.damaged").exists()
