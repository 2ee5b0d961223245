"""Verbs that read several clusters side by side: two API servers, and one that is not there."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.stub_api import StubApi, stub_api

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Run = Callable[[str], tuple[int, str, str]]

COMMIT = "a" * 40
REVISION = f"main@sha1:{COMMIT}"
READY = {"type": "Ready", "status": "True", "reason": "Applied", "message": "applied"}
SERVED = {
    "revision": REVISION, "digest": f"sha256:{'d' * 64}", "served": "2/2", "total": 2, "delivered": 2,
    "conditions": [READY], "observedGeneration": 1,
}  # fmt: skip


def fill(stub: StubApi, name: str) -> None:
    """A namespace with a source of this name and a set of flags that is served."""
    stub.put("/api/v1/namespaces/shop", {"kind": "Namespace", "metadata": {"name": "shop"}})
    specs: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
        "FlagSource": (name, {}, {"conditions": [READY]}),
        "FeatureFlagConfiguration": ("flags", {"flagSpec": {"flags": {}}}, SERVED),
    }
    for kind, (named, spec, status) in specs.items():
        metadata = {"namespace": "shop", "name": named, "generation": 1}
        body = {"kind": kind, "metadata": metadata, "spec": spec, "status": status}
        stub.put(stub.path_of(body), body)


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """Contexts `eu` and `us`, and `lost`, where nothing listens."""
    merged: dict[str, list[Any]] = {"clusters": [], "users": [], "contexts": []}
    with contextlib.ExitStack() as stack:
        for context in ("eu", "us"):
            (tmp_path / context).mkdir()
            stub = stack.enter_context(stub_api(tmp_path / context))
            fill(stub, f"of-{context}")
            own = json.loads(stub.kubeconfig.read_text())
            merged["clusters"].append({**own["clusters"][0], "name": context})
            merged["users"].append({**own["users"][0], "name": context})
        merged["clusters"].append({"name": "lost", "cluster": {"server": "http://127.0.0.1:1"}})
        merged["users"].append({"name": "lost", "user": {}})
        merged["contexts"] = [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": "shop"}}
            for name in ("eu", "us", "lost")
        ]
        path = tmp_path / "config"
        path.write_text(json.dumps({**merged, "current-context": "eu"}))
        yield path


@pytest.fixture
def run(kubeconfig: Path) -> Run:
    """Runs a verb in a process: (exit code, what it prints, what it says on standard error)."""

    def call(words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "controller", *words.split(), "--kubeconfig", str(kubeconfig)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return call


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_objects_of_two_clusters_stand_side_by_side(run: Run) -> None:
    code, out, err = run("get sources --context eu --context us")
    rows = cells(out)
    assert (code, err) == (0, "")
    assert [row[:2] for row in rows] == [["CLUSTER", "NAME"], ["eu", "of-eu"], ["us", "of-us"]]
    records = json.loads(run("get sources --context eu --context us -o json")[1])
    assert [(record["cluster"], record["name"]) for record in records] == [("eu", "of-eu"), ("us", "of-us")]


def test_one_cluster_is_shown_without_its_name(run: Run) -> None:
    code, out, _ = run("get sources --context us --context us")
    assert (code, [row[0] for row in cells(out)]) == (0, ["NAME", "of-us"])
    assert "cluster" not in json.loads(run("get sources --context us -o json")[1])[0]


def test_a_name_need_only_be_in_one_of_the_clusters(run: Run) -> None:
    code, out, _ = run("get source of-us --context eu --context us -o name")
    assert (code, out) == (0, "FlagSource/of-us\n")
    code, _, err = run("get source of-asia --context eu --context us")
    assert (code, "there is no source of-asia in any of the clusters" in err) == (1, True)


def test_flag_sets_of_two_clusters_stand_side_by_side(run: Run) -> None:
    code, out, _ = run("fleet --context eu --context us")
    assert (code, [row[:4] for row in cells(out)[1:]]) == (
        0,
        [
            ["eu", "shop/flags", "main@sha1:aaaaaaaaaaaa", "2/2"],
            ["us", "shop/flags", "main@sha1:aaaaaaaaaaaa", "2/2"],
        ],
    )
    records = json.loads(run("fleet --context eu --context us -o json")[1])
    assert [(record["cluster"], record["served"]) for record in records] == [("eu", "2/2"), ("us", "2/2")]


@pytest.mark.parametrize("verb", ["get sources", "fleet", f"wait ffc/flags --revision {COMMIT} --timeout 2s"])
def test_a_cluster_that_cannot_be_read_does_not_hide_the_others(verb: str, run: Run) -> None:
    code, out, err = run(f"{verb} --context lost --context us")
    assert code == 1
    assert "us" in out
    assert "flagstaff: lost: the cluster cannot be read: " in err
    assert "http://127.0.0.1:1: connection refused" in err


@pytest.mark.parametrize("verb", ["get sources", "fleet"])
def test_where_no_cluster_can_be_read_the_code_says_so(verb: str, kubeconfig: Path, run: Run) -> None:
    named = json.loads(kubeconfig.read_text())
    named["contexts"].append({"name": "gone", "context": {"cluster": "lost", "user": "lost"}})
    kubeconfig.write_text(json.dumps(named))
    code, _, err = run(f"{verb} --context lost --context gone")
    assert (code, "none of the clusters can be read" in err) == (3, True)


def test_a_wait_ends_when_each_cluster_serves_the_revision(run: Run) -> None:
    code, out, err = run(f"wait ffc/flags --revision {COMMIT} --context eu --context us --timeout 5s")
    assert code == 0, err
    assert [line.partition(": ")[0] for line in out.splitlines()] == ["eu", "us"]
    code, out, err = run(
        f"wait ffc/flags --revision {'b' * 40} --context eu --context us --timeout 1s -o json"
    )
    results = json.loads(out)
    assert (code, [(result["cluster"], result["served"]) for result in results]) == (
        1, [("eu", False), ("us", False)],
    )  # fmt: skip
    assert "eu: " in err
