"""Controllers that divide the objects of one cluster, by label and by namespace."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import pytest

from controller.api.meta import SHARD_KEY
from tests.cluster.api import Api, path_of
from tests.cluster.controllers import SYSTEM, ControllerProcess, controller
from tests.cluster.patience import within
from tests.cluster.plane import free_ports
from tests.cluster.plugin import namespace_on
from tests.cluster.spines import spine_in
from tests.worlds.flags import flags
from tests.worlds.objects import condition, flag_set, flag_source

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from tests.cluster.plane import Plane
    from tests.cluster.spines import Spine

SHARDS: Final = ("shard1", "shard2", "shard3")
KINDS: Final = ("FlagSource", "FlagSet", "FeatureFlagConfiguration")
EACH: Final = 333
"""Objects of each kind in each shard: three thousand, with those that FlagSets write and three of the default
controller.
"""
TOLD_SECONDS: Final = 60.0
"""Within which it is known that a shard has no leader: 20 s of silence, and time for the machine."""


class Shard(ControllerProcess):
    """The controller of one shard, or with an empty name the default one."""

    def __init__(self, plane: Plane, folder: Path, shard: str, *words: str) -> None:
        selector = f"{SHARD_KEY}={shard}" if shard else f"!{SHARD_KEY}"
        [port] = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        options = ("--watch-label-selector", selector, "--log-format", "json", "--artifact-port", str(port))
        named = (*options, "--artifact-address", self.address, *words)
        super().__init__(plane, folder, *named, name=shard or "default")
        self.stored = folder / "data" / "artifacts" / "flagsource"
        self.shard = shard

    def sources(self, space: str) -> set[str]:
        """The sources of a namespace whose artifacts it has."""
        return {folder.name for folder in self.stored.glob(f"{space}/*")}

    def told(self) -> set[str]:
        """`Kind/namespace/name` of the objects that its log tells of."""
        lines = (json.loads(line) for line in self.log_text().splitlines() if line.startswith("{"))
        return {line["object"] for line in lines if "object" in line}

    def measured(self, space: str) -> set[str]:
        """`Kind/name` of the objects in a namespace that its metrics show."""
        return set(self._numbers("flagstaff_condition", space))

    def misplaced(self, space: str) -> dict[str, float]:
        """`Kind/name` of the objects that not exactly one controller reconciles, and how many do."""
        return self._numbers("flagstaff_object_shards", space)

    def _numbers(self, metric: str, space: str) -> dict[str, float]:
        line = re.compile(
            rf'^{metric}\{{kind="(\w+)",name="([\w-]+)",namespace="{space}".*\}} (\S+)$', re.MULTILINE
        )
        return {f"{kind}/{name}": float(number) for kind, name, number in line.findall(self.metrics())}


@contextlib.contextmanager
def shards(plane: Plane, folder: Path, names: Collection[str], *words: str) -> Iterator[dict[str, Shard]]:
    """The default controller and one for each name, once each leads."""
    processes = {name: Shard(plane, folder / (name or "default"), name, *words) for name in ("", *names)}
    with contextlib.ExitStack() as stack:
        for process in processes.values():
            stack.enter_context(contextlib.closing(process))
            process.start()
        for process in processes.values():
            process.wait_leads()
        yield processes


def given_to(shard: str, body: dict[str, Any]) -> dict[str, Any]:
    """A manifest with the label of a shard."""
    return {**body, "metadata": {**body["metadata"], "labels": {SHARD_KEY: shard}}}


def give(spine: Spine, kind: str, name: str, shard: str | None) -> None:
    """Change the label; None: remove it."""
    spine.patch(kind, {"metadata": {"labels": {SHARD_KEY: shard}}}, name)


def applied(spine: Spine, commit: str, names: Collection[str]) -> bool:
    """Whether these FlagSets have applied the commit. Lists are large: looked at now and then."""
    time.sleep(1.0)
    found = {each["metadata"]["name"]: each for each in spine.all("flagset")}
    revision = f"main@sha1:{commit}"
    return all(found[name].get("status", {}).get("lastAppliedRevision") == revision for name in names)


def names_of(shard: str) -> list[str]:
    return [f"{shard}-{number}" for number in range(EACH)]


def fill(spine: Spine) -> None:
    """Sources with a FlagSet each, of three shards."""
    with ThreadPoolExecutor(8) as pool:
        for shard in SHARDS:
            list(
                pool.map(
                    lambda name, shard=shard: spine.apply(
                        given_to(shard, flag_source(spine.url, name=name)),
                        given_to(shard, flag_set(name=name, source=name)),
                    ),
                    names_of(shard),
                )
            )


def identity(spine: Spine, name: str) -> tuple[str, str]:
    """The uid of what is served, and the shard that it belongs to."""
    meta = spine.get("ffc", name)["metadata"]
    return meta["uid"], meta["labels"].get(SHARD_KEY, "")


def written(spine: Spine) -> dict[str, Any]:
    """What FlagSets wrote, by name."""
    return {each["metadata"]["name"]: each for each in spine.all("ffc")}


def all_ready(spine: Spine) -> bool:
    time.sleep(1.0)
    return all(condition(each, "Ready").get("status") == "True" for each in written(spine).values())


def objects_of(shard: str) -> set[str]:
    """`Kind/name` of what a controller reconciles."""
    return {f"{kind}/{name}" for kind in KINDS for name in (names_of(shard) if shard else ["flags"])}


def check_each_has_one_controller(spine: Spine, running: Mapping[str, Shard]) -> None:
    configurations = written(spine)
    for shard, process in running.items():
        told = {"/".join(key.split("/")[::2]) for key in process.told() if f"/{spine.name}/" in key}
        assert told
        assert told <= process.measured(spine.name) == objects_of(shard)
        names = names_of(shard) if shard else ["flags"]
        assert process.sources(spine.name) == set(names)
        assert {configurations[name]["metadata"]["labels"].get(SHARD_KEY, "") for name in names} == {shard}
    assert len(configurations) == 1 + len(SHARDS) * EACH
    assert running[""].misplaced(spine.name) == {}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_three_shards_divide_three_thousand_objects_and_a_dead_one_costs_the_others_nothing(
    spare: Plane, spare_namespace: str, tmp_path: Path
) -> None:
    with spine_in(spare, spare_namespace, tmp_path) as spine, shards(spare, tmp_path, SHARDS) as running:
        first = spine.repository.git("rev-parse", "HEAD")
        fill(spine)
        everything = ["flags", *(name for shard in SHARDS for name in names_of(shard))]
        within(lambda: applied(spine, first, everything), patience=500.0)
        within(lambda: all_ready(spine), patience=120.0)
        check_each_has_one_controller(spine, running)

        *living, dead = SHARDS
        before = written(spine)
        running[dead].end(signal.SIGKILL)
        second = spine.repository.commit("banner off", flags__json=flags(banner="off"))
        asked = ["flags", *(name for shard in living for name in names_of(shard)[:20])]
        for name in asked:
            spine.poke("flagsource", name)
        within(lambda: applied(spine, second, asked))
        lost = dict.fromkeys(objects_of(dead), 0.0)
        within(lambda: running[""].misplaced(spine.name) == lost, patience=TOLD_SECONDS)
        # What it served stays, until another shard is given it.
        after = written(spine)
        assert all(after[name]["spec"] == before[name]["spec"] for name in names_of(dead))
        moved = names_of(dead)[0]
        for kind in ("flagsource", "flagset"):
            give(spine, kind, moved, "shard1")
        within(lambda: applied(spine, second, [moved]))
        assert identity(spine, moved) == (before[moved]["metadata"]["uid"], "shard1")
        assert moved in running["shard1"].sources(spine.name)
        within(lambda: f"FeatureFlagConfiguration/{moved}" not in running[""].misplaced(spine.name))


def check_leases(plane: Plane) -> None:
    """Each says what its controller selects."""
    leases = {
        each["metadata"]["name"]: each["metadata"] for each in Api(plane).items(path_of("lease", SYSTEM))
    }
    said = "flagstaff.dev/watch-label-selector"
    assert leases["flagstaff-controller"]["annotations"][said] == f"!{SHARD_KEY}"
    assert leases["flagstaff-controller-shard1"]["annotations"][said] == f"{SHARD_KEY}=shard1"


@pytest.mark.timeout(300)
def test_references_lead_into_other_shards_and_objects_move_between_them(
    spare: Plane, spare_namespace: str, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("shared-by-all-shards\n")
    words = ("--artifact-tokens-file", str(tokens))
    with (
        spine_in(spare, spare_namespace, tmp_path) as spine,
        shards(spare, tmp_path, ["shard1"], *words) as running,
    ):
        default, first = running[""], running["shard1"]
        spine.apply(
            given_to("shard1", flag_source(spine.url, name="theirs")),
            # The default controller reads an artifact of the shard, and the shard waits for the default's.
            flag_set(name="mixed", source="theirs"),
            flag_source(spine.url, name="both", include=[{"repository": {"name": "theirs"}}]),
            given_to("shard1", flag_set(name="waiting", dependsOn=[{"name": "flags"}])),
        )
        for name in ("flags", "mixed", "waiting"):
            spine.wait_ready("flagset", name)
            spine.wait_ready("ffc", name)
        spine.wait_ready("flagsource", "both")
        assert f"http://{first.address}/" in spine.get("flagsource", "theirs")["status"]["artifact"]["url"]
        assert (default.sources(spine.name), first.sources(spine.name)) == ({"flags", "both"}, {"theirs"})
        assert {"FlagSet/mixed", "FlagSet/waiting"} & default.measured(spine.name) == {"FlagSet/mixed"}

        before = identity(spine, "mixed")
        give(spine, "flagsource", "theirs", None)
        within(
            lambda: (
                f"http://{default.address}/" in spine.get("flagsource", "theirs")["status"]["artifact"]["url"]
            )
        )
        within(lambda: first.sources(spine.name) == set())
        assert "FlagSource/theirs" not in first.measured(spine.name)
        assert identity(spine, "mixed") == before

        uid, _ = identity(spine, "flags")
        give(spine, "flagset", "flags", "shard1")
        within(lambda: identity(spine, "flags") == (uid, "shard1"))
        within(
            lambda: (
                "FeatureFlagConfiguration/flags" in first.measured(spine.name) - default.measured(spine.name)
            )
        )
        commit = spine.push(flags__json=flags(banner="off"))
        spine.wait_applied(commit)
        assert spine.served_variants() == {"banner": "off"}
        assert "DriftCorrected" not in {event["reason"] for event in spine.events()}

        give(spine, "flagset", "flags", "nobody")
        within(lambda: default.misplaced(spine.name) == {"FlagSet/flags": 0.0})
        assert identity(spine, "flags") == (uid, "shard1")
        check_leases(spare)


@pytest.mark.timeout(300)
def test_controllers_of_different_namespaces_reconcile_beside_each_other(
    spare: Plane, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        processes: Mapping[str, ControllerProcess]
        names = [stack.enter_context(namespace_on(spare)) for _ in range(2)]
        spines = [stack.enter_context(spine_in(spare, name, tmp_path / name)) for name in names]
        processes = {
            name: stack.enter_context(
                controller(
                    spare, tmp_path / f"of-{name}", "--namespaces", name, "--lease-name", name, name=name
                )
            )
            for name in names
        }
        for spine in spines:
            spine.wait_ready("flagset")
            spine.wait_ready("ffc")
        for name, process in processes.items():
            places = set(
                re.findall(r'^flagstaff_condition\{.*namespace="([\w-]+)"', process.metrics(), re.MULTILINE)
            )
            assert places == {name}
            assert f'flagstaff_leader{{lease="{name}"}} 1.0' in process.metrics()
