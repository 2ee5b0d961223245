"""What must hold while things break: the API server, the controller, Git, credentials, watches, and other
people's hands.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cluster.api import MERGE, Refused, path_of
from tests.cluster.controllers import ControllerProcess, controller
from tests.cluster.cutting import cutter
from tests.cluster.patience import within
from tests.cluster.spines import spine_in
from tests.worlds.flags import flags
from tests.worlds.objects import condition, configuration, flag_set

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.objects import Namespace
    from tests.cluster.plane import Plane
    from tests.cluster.spines import Spine

KILLS: Final = 20


@pytest.mark.slow
def test_work_goes_on_after_the_api_server_was_killed(
    spare: Plane, spare_namespace: str, tmp_path: Path
) -> None:
    with spine_in(spare, spare_namespace, tmp_path) as spine, controller(spare, tmp_path / "a"):
        spine.wait_ready("flagset")
        spare.end("kube-apiserver", signal.SIGKILL)
        commit = spine.repository.commit("banner off", flags__json=flags(banner="off"))
        spare.run("kube-apiserver")
        spare.wait_ready()
        spine.poke("flagsource")
        spine.wait_applied(commit)
        spine.delete("flagset")
        spine.wait_gone("ffc")
        spine.apply(flag_set(name="another"))
        spine.wait_ready("flagset", "another")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_controller_that_is_killed_again_and_again_ends_where_it_should(
    spare: Plane, spare_namespace: str, tmp_path: Path
) -> None:
    """At any moment of a reconcile: the next leader continues, nothing is written twice, and nothing
    half is served.
    """
    process = ControllerProcess(spare, tmp_path / "a", "--no-leader-election")
    chance = random.Random(7)
    with spine_in(spare, spare_namespace, tmp_path) as spine, contextlib.closing(process):
        commit = ""
        for number in range(KILLS):
            process.start()
            kinds = {f"flag-{number}": "on", "banner": "off" if number % 2 else "on"}
            commit = spine.push(f"number {number}", flags__json=flags(**kinds))
            time.sleep(chance.random() * 0.6)
            process.end(signal.SIGKILL)
            assert spine.whole()
        process.start()
        found = spine.wait_applied(commit)
        assert spine.served_variants() == {f"flag-{KILLS - 1}": "on", "banner": "off"}
        subjects = [each["revision"] for each in found["status"]["history"]]
        assert len(subjects) == len(set(subjects))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_while_watches_are_cut_again_and_again_nothing_is_missed(
    spare: Plane, spare_namespace: str, tmp_path: Path
) -> None:
    with (
        cutter(spare.port, 2.0) as between,
        spine_in(spare, spare_namespace, tmp_path) as spine,
        controller(
            spare, tmp_path / "a", "--no-leader-election", via=f"https://127.0.0.1:{between.port}"
        ) as process,
    ):
        number = 0
        while between.cuts < 5:
            number += 1
            spine.wait_applied(spine.push(flags__json=flags(**{f"flag-{number}": "on"})))
        spine.delete("ffc")
        spine.wait_ready("ffc")
        # Those of other namespaces may still be on their way out.
        gone = f'kind="FlagSet",name="flags",namespace="{spine.name}"'
        assert gone in process.metrics()
        between.closed.set()
        between.cut()
        spine.delete("flagset")
        spine.wait_gone("ffc")
        between.closed.clear()
        within(lambda: gone not in process.metrics())


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_an_object_that_was_deleted_before_a_watch_began_anew_is_forgotten(
    spare: Plane, spare_namespace: str, tmp_path: Path
) -> None:
    """Of versions that etcd has forgotten kopf lists again, and no list shows a deletion."""
    with (
        cutter(spare.port, 3600.0) as between,
        spine_in(spare, spare_namespace, tmp_path) as spine,
        controller(
            spare, tmp_path / "a", "--no-leader-election", via=f"https://127.0.0.1:{between.port}"
        ) as process,
    ):
        spine.wait_ready("flagset")
        there = f'kind="FlagSet",name="flags",namespace="{spine.name}"'
        within(lambda: there in process.metrics())
        between.closed.set()
        between.cut()
        spine.delete("flagset")
        spine.wait_gone("ffc")
        spare.end("kube-apiserver", signal.SIGKILL)
        spare.compact()
        spare.run("kube-apiserver")
        spare.wait_ready()
        between.closed.clear()
        within(lambda: there not in process.metrics())


def test_a_git_server_that_is_down_changes_nothing_and_is_tried_again(spine: Spine) -> None:
    spine.server.redirect_to = "http://127.0.0.1:1"
    commit = spine.push(flags__json=flags(banner="off"))
    found = spine.wait("flagsource", lambda it: condition(it, "Ready")["status"] == "False")
    assert condition(found, "Reconciling")["reason"] == "ProgressingWithRetry"
    assert condition(found, "ArtifactInStorage")["status"] == "True"
    assert condition(spine.get("flagset"), "Ready")["status"] == "True"
    assert spine.served_variants() == {"banner": "on"}
    spine.server.redirect_to = ""
    # By itself: the backoff began with less than a second.
    spine.wait_applied(commit)
    reported = [(each["involvedObject"]["uid"], each["reason"], each["message"]) for each in spine.events()]
    assert "Warning" in {each["type"] for each in spine.events()}
    assert len(reported) == len(set(reported))


def test_deletion_completes_with_git_down(spine: Spine) -> None:
    spine.server.redirect_to = "http://127.0.0.1:1"
    spine.poke("flagsource")
    spine.wait("flagsource", lambda it: condition(it, "Ready")["status"] == "False")
    for kind in ("flagsource", "flagset"):
        spine.delete(kind)
        spine.wait_gone(kind)
    spine.wait_gone("ffc")


def test_a_namespace_that_is_deleted_goes_with_all_that_is_in_it(spine: Spine) -> None:
    spine.api.ask("DELETE", f"/api/v1/namespaces/{spine.name}")
    within(lambda: not spine.api.find(f"/api/v1/namespaces/{spine.name}"))


def test_many_writers_at_once_lose_no_commit_and_no_field(spine: Spine) -> None:
    """Each write of theirs makes every version that we know an old one."""
    stop = threading.Event()
    hands = [threading.Thread(target=scribble, args=(spine, stop, name)) for name in "abcd"]
    for each in hands:
        each.start()
    try:
        for default in ("off", "on", "off"):
            spine.wait_applied(spine.push(flags__json=flags(banner=default)))
    finally:
        stop.set()
        for each in hands:
            each.join()
    assert spine.served_variants() == {"banner": "off"}
    notes = spine.get("flagset")["metadata"]["annotations"]
    assert {"a", "b", "c", "d"} <= notes.keys()


def scribble(spine: Spine, stop: threading.Event, name: str) -> None:
    """Write notes at every object, as fast as the API server takes them."""
    number = 0
    while not stop.is_set():
        number += 1
        body = {"metadata": {"annotations": {name: str(number)}}}
        for kind in ("flagsource", "flagset", "ffc"):
            try:
                spine.api.ask("PATCH", path_of(kind, spine.name, "flags"), body, MERGE)
            except Refused:
                continue


def test_an_object_that_is_edited_while_we_write_it_ends_as_git_has_it(spine: Spine) -> None:
    commit = ""
    for number in range(10):
        default = "off" if number % 2 else "on"
        commit = spine.push(flags__json=flags(banner=default))
        edit: dict[str, Any] = {"flags": {"banner": {"defaultVariant": "on"}, "mine": None}}
        spine.patch("ffc", {"spec": {"flagSpec": edit}})
    spine.wait_applied(commit)
    spine.wait("ffc", lambda _: spine.served_variants() == {"banner": "off"})
    spine.wait_ready("flagset")


@contextlib.contextmanager
def define_kind(space: Namespace, plural: str, schema: dict[str, Any]) -> Iterator[None]:
    """Another definition of a kind, for as long as the block lasts."""
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}"
    before = space.api.ask("GET", path)["spec"]["versions"]
    version = {**before[0], "schema": {"openAPIV3Schema": schema}}
    space.api.ask("PATCH", path, {"spec": {"versions": [version]}}, MERGE)
    try:
        yield
    finally:
        space.api.ask("PATCH", path, {"spec": {"versions": before}}, MERGE)


ANYTHING: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@pytest.mark.long
def test_a_malformed_flag_set_is_reported_and_its_siblings_go_on(
    spare: Plane, spare_namespace: str, tmp_path: Path
) -> None:
    """Objects from before a schema was narrowed, as they are after an upgrade."""
    with (
        spine_in(spare, spare_namespace, tmp_path) as spine,
        define_kind(spine, "flagsets.flagstaff.dev", ANYTHING),
    ):
        for name, reference in (("number", 3), ("list", ["flags"])):
            body = flag_set(name=name) | {"spec": {"sourceRef": reference, "dependsOn": 7}}
            within(lambda body=body: is_accepted(spine, body))  # type: ignore[misc]  # the loop's own body
        with controller(spare, tmp_path / "a", "--no-leader-election"):
            spine.wait_ready("flagset")
            for name in ("number", "list"):
                found = spine.wait_reason("flagset", "InvalidSpec", name)
                assert "spec.sourceRef" in condition(found, "Ready")["message"]


def is_accepted(space: Namespace, body: dict[str, Any]) -> bool:
    """Whether the API server takes the object: a changed definition is in force after a moment."""
    try:
        space.api.ask("POST", path_of(body["kind"], space.name), body)
    except Refused:
        return False
    return True


@pytest.mark.long
def test_a_definition_without_room_for_our_status_is_not_fought(
    spare: Plane, spare_namespace: str, tmp_path: Path
) -> None:
    """OpenFeature Operator's own FeatureFlag: it prunes every field of a status."""
    operators = {"type": "object", "properties": {"spec": ANYTHING, "status": {"type": "object"}}}
    broken = configuration("broken", flagSpec={"flags": {"banner": {"defaultVariant": "lost"}}})
    with (
        spine_in(spare, spare_namespace, tmp_path) as spine,
        define_kind(spine, "featureflags.core.openfeature.dev", operators),
        controller(spare, tmp_path / "a", "--no-leader-election") as process,
    ):
        spine.apply(flag_set(target={"kinds": ["FeatureFlag"]}), broken | {"kind": "FeatureFlag"})
        spine.wait_ready("flagset")
        spine.wait("featureflag", lambda it: it["spec"]["flagSpec"]["flags"]["banner"])
        within(lambda: [each["reason"] for each in spine.events("broken")] == ["InvalidFlags"])  # fmt: skip
        spine.poke_and_wait("flagset")
        assert "conditions" not in spine.get("featureflag").get("status", {})
        assert process.log_text().count("has no status field for our status") == 1
