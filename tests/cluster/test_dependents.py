"""Whom a FlagSet works with: Flux's sources, other FlagSets, stock flagd's kind; and what a user writes
without any FlagSet.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

from controller.artifacts.archive import pack
from tests.cluster.api import MERGE, path_of
from tests.cluster.fleets import flagstaff, followed_source
from tests.cluster.flux import FLUX, install
from tests.cluster.patience import within
from tests.cluster.pods import pods
from tests.worlds.flags import flags
from tests.worlds.objects import condition, configuration, current, flag_set, flag_source, manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.objects import Namespace
    from tests.cluster.proxies import ProxyProcess
    from tests.cluster.spines import Spine


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """(URL, digest) of an artifact as Flux serves it."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "flags.json").write_text(flags(banner="on"))
    content = pack(tmp_path / "tree")
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "a.tar.gz").write_bytes(content)

    class Files(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(tmp_path / "served"))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Nothing is printed."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        yield f"http://127.0.0.1:{server.server_port}/a.tar.gz", digest
        server.shutdown()


@pytest.mark.parametrize("kind", FLUX)
def test_a_source_of_flux_whose_kind_comes_later_is_read(
    space: Namespace, archive: tuple[str, str], kind: str
) -> None:
    url, digest = archive
    reference = {"sourceRef": {"kind": kind, "name": "flags"}}
    space.apply(flag_set() | {"spec": reference})
    waiting = space.wait_reason("flagset", "ArtifactFailed")
    assert condition(waiting, "Reconciling")["status"] == "True"
    install(space, kind)
    made = {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind}
    space.apply({**made, "metadata": {"name": "flags"}, "spec": {}})
    artifact = {"path": "a", "url": url, "revision": "main@sha1:" + "a" * 40, "digest": digest}
    status = {"status": {"artifact": {**artifact, "lastUpdateTime": "2026-01-01T00:00:00Z"}}}
    path = f"{path_of(kind.lower(), space.name, 'flags')}/status"
    space.api.ask("PATCH", path, status, MERGE)
    found = space.wait_ready("flagset")
    assert found["status"]["lastAppliedRevision"] == artifact["revision"]
    assert space.served_variants() == {"banner": "on"}


def test_an_exported_source_is_read_as_one_of_flux_until_it_is_exported_no_more(spine: Spine) -> None:
    install(spine, "ExternalArtifact")
    source = flag_source(spine.url, export=True)
    spine.apply(source, flag_set(sourceRef={"kind": "ExternalArtifact", "name": "flags"}))
    exported = spine.wait("externalartifact", lambda it: condition(it, "Ready").get("status") == "True")
    found = spine.wait_ready("flagsource")
    assert exported["status"]["artifact"] == found["status"]["artifact"]
    assert exported["spec"]["sourceRef"]["name"] == "flags"
    assert exported["metadata"]["ownerReferences"][0]["uid"] == found["metadata"]["uid"]
    spine.wait("flagset", lambda each: each["status"].get("lastAppliedRevision"))
    commit = spine.push(flags__json=flags(banner="off"))
    spine.wait_applied(commit)
    exported = spine.get("externalartifact")["status"]["artifact"]
    spine.wait("flagsource", lambda each: each["status"]["artifact"] == exported)
    spine.apply(source | {"spec": {**source["spec"], "export": False}})
    spine.wait_gone("externalartifact")
    spine.wait_ready("flagsource")


def test_stock_flagd_s_kind_is_written_where_it_is_asked_for(spine: Spine) -> None:
    kinds = ["FeatureFlagConfiguration", "FeatureFlag"]
    spine.apply(flag_set(target={"name": "checkout", "kinds": kinds}))
    found = spine.wait_ready("featureflag", "checkout")
    assert found["spec"]["flagSpec"] == spine.get("ffc", "checkout")["spec"]["flagSpec"]
    spine.wait_gone("ffc")
    assert not condition(found, "NameConflict")
    targets = spine.wait_ready("flagset")["status"]["target"]
    assert [(each["kind"], each["name"]) for each in targets] == [(k, "checkout") for k in kinds]


def test_two_objects_of_one_name_describe_the_conflict_until_one_of_them_goes(space: Namespace) -> None:
    reasons = {"featureflag": "Shadowed", "ffc": "Shadows"}
    content = {"flagSpec": json.loads(flags(banner="on"))}
    space.apply(configuration(**content), configuration(**content) | {"kind": "FeatureFlag"})
    for kind, reason in reasons.items():
        found = space.wait(kind, lambda it: condition(it, "NameConflict").get("status") == "True")
        assert condition(found, "Ready")["status"] == "True"
        assert re.search(rf"Reason: +{reason}\n", space.kubectl("describe", kind, "flags"))
    within(lambda: len(space.events()) == len(reasons))
    said = [(each["reason"], each["count"]) for each in space.events()]
    assert sorted(said) == [("Shadowed", 1), ("Shadows", 1)]
    space.delete("ffc")
    space.wait("featureflag", lambda it: not condition(it, "NameConflict"))
    assert "same name" not in space.kubectl("describe", "featureflag", "flags", "--show-events=false")


def dispute_reason(found: dict[str, Any]) -> str:
    """Why, as the status has it; empty where nothing is."""
    return str(condition(found, "NameConflict").get("reason", ""))


def test_two_objects_of_one_flag_set_id_describe_the_conflict_until_one_gives_it_up(space: Namespace) -> None:
    claimed = json.loads(flags(banner="on")) | {"metadata": {"flagSetId": f"id-{space.name}"}}
    space.apply(configuration("first", flagSpec=claimed))
    space.wait_ready("ffc", "first")
    space.apply(configuration("second", flagSpec=claimed))
    for name, reason in {"first": "FlagSetIdContested", "second": "FlagSetIdTaken"}.items():
        found = space.wait("ffc", dispute_reason, name)
        assert dispute_reason(found) == reason
        assert f"id-{space.name}" in space.kubectl("describe", "ffc", name)
    space.apply(configuration("second", flagSpec=json.loads(flags(banner="on"))))
    for name in ("first", "second"):
        space.wait("ffc", lambda it: not condition(it, "NameConflict"), name)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"flagSpec": {"flags": {"banner": {"defaultVariant": "lost"}}}}, "InvalidFlags"),
        ({"featureFlagSpec": "{no json"}, "InvalidFlags"),
        ({"shards": [{"name": "missing", "digest": "sha256:0"}]}, "ShardsMissing"),
    ],
    ids=["a flag is malformed", "no JSON", "a shard is missing"],
)
def test_a_malformed_object_affects_no_other(space: Namespace, spec: dict[str, Any], reason: str) -> None:
    space.apply(configuration(**spec))
    good = configuration("good", flagSpec=json.loads(flags(banner="on")))
    space.apply(good)
    space.wait_ready("ffc", "good")
    found = space.wait_reason("ffc", reason)
    assert current(found)


@pytest.mark.long
@pytest.mark.parametrize("prune", [True, False], ids=["deleted", "left"])
def test_evaluators_of_a_flag_set_follow_when_its_target_is_renamed(
    spine: Spine, delivering: ProxyProcess, tmp_path: Path, prune: bool
) -> None:
    source = followed_source(delivering.target, spine.name)
    with pods(spine.plane, spine.name, source, tmp_path / "pods", "web-1"):
        spine.wait("ffc", lambda found: found["status"].get("served") == "1/1")
        spine.patch("flagset", {"spec": {"prune": prune, "target": {"name": "renamed"}}})
        if not prune:
            left = spine.wait("ffc", lambda found: condition(found, "Superseded").get("status") == "True")
            assert condition(left, "Superseded")["message"] == (
                "FlagSet flags writes FeatureFlagConfiguration renamed and not this object any more; "
                "1 subscriber follows it"
            )
            assert left["status"]["served"] == "1/1"
            spine.delete("ffc")
        spine.push(flags__json=flags(banner="off"))
        spine.wait("ffc", lambda found: found["status"].get("served") == "1/1", "renamed")


def test_a_flag_set_says_that_what_it_depends_on_is_being_rolled_out(spine: Spine) -> None:
    steps = [{"share": 20, "approval": "Required"}, {"share": 60, "approval": "Required"}]
    spec = {"flagSetRef": {"name": "flags"}, "flags": ["*"], "steps": steps}
    spine.apply(
        manifest("FlagRollout", "slow", spec), flag_set(name="depending", dependsOn=[{"name": "flags"}])
    )
    spine.wait("flagrollout", lambda found: found.get("status", {}).get("phase") == "Idle", "slow")
    spine.wait_ready("flagset", "depending")
    commit = spine.push(flags__json=flags(banner="off"))
    spine.wait_applied(commit)
    depending = spine.wait(
        "flagset", lambda found: condition(found, "DependenciesServed").get("status") == "False", "depending"
    )
    message = condition(depending, "DependenciesServed")["message"]
    assert message.startswith("FlagSet flags is applied, but not served to all users: FlagRollout slow: ")
    code, tree = flagstaff(spine.plane, "tree", "-n", spine.name)
    assert (code, "FlagSet flags is applied, but not served to all users" in tree) == (0, True)
    # It does not wait.
    spine.wait(
        "flagset", lambda found: found["status"]["lastAppliedRevision"] == f"main@sha1:{commit}", "depending"
    )
