"""Which objects a controller reconciles, and who reconciles the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from controller.api.kinds import FLAG_SET
from controller.api.meta import ObjectKey, Resource
from controller.runtime.cache import Cache
from controller.runtime.metrics import ShardMetrics
from controller.runtime.process import Role
from controller.runtime.setbacks import Failed
from controller.runtime.shards import ARTIFACTS, DURATION, LabelSelector, Shard, ShardFollower
from controller.runtime.watches import Dispatcher, Reconciles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.runtime.loop import Loop

KEY = "sharding.fluxcd.io/key"
DEFAULT, FIRST = Shard.of(f"!{KEY}", ()), Shard.of(f"{KEY}=shard1", ())


def labelled(shard: str = "", *, kind: str = "FlagSet", name: str = "x", **more: Any) -> Resource:
    """An object that is given to a shard."""
    labels = {KEY: shard} if shard else {}
    return Resource(ObjectKey(kind, "shop", name), f"{kind}-{name}", 1, "1", labels=labels, **more)


SELECTED = {
    "a": (["a"], ["b", "none"]),
    "!a": (["b", "none"], ["a"]),
    "a=1": (["a"], ["none", "other"]),
    "a == 1": (["a"], ["none", "other"]),
    "a!=1": (["other", "none"], ["a"]),
    "a in (1, 2)": (["a", "other"], ["none", "b"]),
    "a notin (1,3)": (["other", "none"], ["a"]),
    "a,b": (["both"], ["a", "b"]),
    "a in (1,2),!b": (["a", "other"], ["both"]),
}
OBJECTS = {"a": {"a": "1"}, "other": {"a": "2"}, "b": {"b": "1"}, "both": {"a": "1", "b": "1"}, "none": {}}


@pytest.mark.parametrize(("text", "names"), SELECTED.items(), ids=SELECTED)
def test_a_selector_selects_as_kubernetes_does(text: str, names: tuple[list[str], list[str]]) -> None:
    selector = LabelSelector.parse(text)
    assert [selector.matches(OBJECTS[name]) for name in names[0]] == [True] * len(names[0])
    assert [selector.matches(OBJECTS[name]) for name in names[1]] == [False] * len(names[1])


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_selector_is_refused_as_it_would_select_all(text: str) -> None:
    with pytest.raises(ValueError, match="must not be empty, as it would select every object"):
        LabelSelector.parse(text)


@pytest.mark.parametrize("text", ["a=", "a in ()", "a,", "a>1", "=b", "a=b c", "a in (1", "a=(b)"])
def test_what_is_no_selector_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"sharding\.fluxcd\.io/key=shard1"):
        LabelSelector.parse(text)


def test_a_shard_reconciles_what_has_its_label_and_the_default_controller_the_rest() -> None:
    of_shard, of_nobody = labelled("shard1"), labelled()
    assert (FIRST.owns(of_shard), FIRST.owns(of_nobody), FIRST.owns(labelled("shard2"))) == (
        True,
        False,
        False,
    )
    assert (DEFAULT.owns(of_shard), DEFAULT.owns(of_nobody)) == (False, True)
    assert (DEFAULT.is_default, FIRST.is_default, Shard().is_default) == (True, False, True)


@pytest.mark.parametrize("kind", ["FlagAlert", "FlagProvider"])
def test_alerts_are_the_default_controller_s_whatever_their_labels(kind: str) -> None:
    alert = labelled("shard1", kind=kind)
    assert (DEFAULT.owns(alert), FIRST.owns(alert)) == (True, False)


def test_a_shard_of_namespaces_reconciles_in_them_alone() -> None:
    assert Shard.of(None, ["shop"]).owns(labelled())
    assert not Shard.of(None, ["other"]).owns(labelled())


NAMES = {f"{KEY}=shard1": "shard1", f"{KEY} in (shard1)": "shard1", f"!{KEY}": "", f"{KEY} notin (a)": ""}


@pytest.mark.parametrize(("text", "name"), NAMES.items(), ids=NAMES)
def test_the_name_of_a_shard_is_its_label_s_value_and_the_default_controller_has_none(
    text: str, name: str
) -> None:
    assert Shard.of(text, ()).name == name


def test_other_selectors_have_names_that_differ() -> None:
    texts = [f"{KEY} in (a,b)", f"{KEY}=Upper", f"{KEY}=a,team=b", "team=shard1", KEY]
    names = {Shard.of(text, ()).name for text in texts}
    assert len(names - {"shard1", ""}) == len(texts)


@dataclass
class Loops:
    """A loop of FlagSets, and what it is told."""

    woken: list[ObjectKey] = field(default_factory=list)
    forgotten: list[ObjectKey] = field(default_factory=list)

    def wake(self, key: ObjectKey) -> None:
        self.woken.append(key)

    def forget(self, key: ObjectKey) -> None:
        self.forgotten.append(key)

    def take(self) -> tuple[int, int]:
        """How often it was woken, and how often told to forget, since this was asked last."""
        counts = len(self.woken), len(self.forgotten)
        self.woken, self.forgotten = [], []
        return counts


def test_an_object_that_is_given_to_another_shard_is_forgotten_here_and_woken_there() -> None:
    cache, here, there = Cache(), Loops(), Loops()
    for shard, loop in ((FIRST, here), (DEFAULT, there)):
        Dispatcher(cache, [Reconciles(FLAG_SET)], {"FlagSet": cast("Loop", loop)}, shard=shard)
    cache.put(labelled("shard1"))
    assert (here.take(), there.take()) == ((1, 0), (0, 0))
    cache.put(labelled())
    assert (here.take(), there.take()) == ((0, 1), (1, 0))
    # Not again: what is not known needs not be forgotten.
    cache.put(labelled(status={"x": 1}))
    assert (here.take(), there.take()) == ((0, 0), (0, 0))
    cache.put(labelled("shard1"))
    assert (here.take(), there.take()) == ((1, 0), (0, 1))


def test_a_new_label_among_those_of_one_shard_wakes_the_object() -> None:
    cache, loop, both = Cache(), Loops(), Shard.of(f"{KEY} in (a,b)", ())
    Dispatcher(cache, [Reconciles(FLAG_SET)], {"FlagSet": cast("Loop", loop)}, shard=both)
    cache.put(labelled("a"))
    cache.put(labelled("b"))
    assert loop.take() == (2, 0)


def lease(selector: str | None, renewed: str, *, holder: str | None = "a", **said: str) -> dict[str, Any]:
    annotations = {"flagstaff.dev/watch-label-selector": selector} if selector is not None else {}
    spec = {"renewTime": renewed} | ({"holderIdentity": holder} if holder else {})
    return {"metadata": {"annotations": annotations | said}, "spec": spec}


@dataclass
class Leases:
    """What the API server answers."""

    answer: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    fails: bool = False

    async def leases(self, namespace: str, labels: Mapping[str, str]) -> dict[str, Mapping[str, Any]]:
        assert namespace == "flagstaff-system"
        assert labels["app.kubernetes.io/component"] == "controller"
        if self.fails:
            raise Failed("ApiServerUnavailable", "no")
        return self.answer


class Neighbours:
    """The default controller, and the Leases that it reads."""

    def __init__(self, own: Shard = DEFAULT) -> None:
        self.leases, self.time, self.objects = Leases(), 0.0, Cache()
        self.follower = ShardFollower(self.leases, "flagstaff-system", lambda: self.time, pause=0.0)
        for shard in ("", "shard1", "shard2"):
            self.objects.put(labelled(shard, name=shard or "none"))
        self.role = Role(leading=True, shard=own)

    async def poll(self, **leases: dict[str, Any]) -> dict[str, float]:
        """The objects that not exactly one controller reconciles, after a look at these Leases."""
        self.leases.answer = dict(leases)
        await self.follower.poll()
        return self.scrape()

    def scrape(self) -> dict[str, float]:
        registry = CollectorRegistry()
        registry.register(ShardMetrics(self.follower, self.objects, {"FlagSet"}, self.role))
        lines = generate_latest(registry).decode().splitlines()
        found = [line for line in lines if line.startswith("flagstaff_object_shards{")]
        return {line.split('name="')[1].split('"')[0]: float(line.split()[-1]) for line in found}


async def test_an_object_that_no_shard_owns_is_reported_by_the_default_controller() -> None:
    around = Neighbours()
    own, first = lease(f"!{KEY}", "t1"), lease(f"{KEY}=shard1", "t1")
    assert around.scrape() == {}
    assert await around.poll(own=own, first=first) == {"shard2": 0.0}
    assert await around.poll(own=own, first=first, second=lease(f"{KEY}=shard2", "t1")) == {}
    around.role.leading = False
    assert await around.poll(own=own) == {}


async def test_objects_of_a_shard_without_a_leader_are_reported() -> None:
    around = Neighbours()
    second = lease(f"{KEY}=shard2", "t1")
    assert (
        await around.poll(own=lease(f"!{KEY}", "t1"), first=lease(f"{KEY}=shard1", "t1"), second=second) == {}
    )
    around.time = DURATION
    own = lease(f"!{KEY}", "t2")
    # One died, and another was asked to stop and let its Lease go.
    released = lease(f"{KEY}=shard2", "t2", holder=None)
    assert await around.poll(own=own, first=lease(f"{KEY}=shard1", "t1"), second=released) == {
        "shard1": 0.0,
        "shard2": 0.0,
    }
    assert await around.poll(own=own, first=lease(f"{KEY}=shard1", "t2"), second=second) == {}


async def test_an_object_that_two_controllers_reconcile_is_reported_by_both() -> None:
    leases = {"all": lease("", "t1"), "first": lease(f"{KEY}=shard1", "t1")}
    assert await Neighbours(FIRST).poll(**leases) == {"shard1": 2.0}
    assert await Neighbours(Shard()).poll(**leases) == {"shard1": 2.0}


async def test_leases_that_say_nothing_or_cannot_be_read_change_nothing() -> None:
    around = Neighbours()
    leases = {"own": lease(f"!{KEY}", "t1"), "first": lease(f"{KEY} in (shard1,shard2)", "t1")}
    assert await around.poll(**leases, older=lease(None, "t1"), odd=lease("a=", "t1")) == {}
    around.leases.fails = True
    assert await around.poll() == {}


async def test_the_artifact_servers_of_all_controllers_are_known_by_their_leases() -> None:
    around = Neighbours()
    said = {ARTIFACTS: "flagstaff-artifacts-shard1.flagstaff-system.svc.cluster.local.:9090"}
    await around.poll(first=lease(f"{KEY}=shard1", "t1", **said), own=lease(f"!{KEY}", "t1"))
    assert around.follower.artifacts == set(said.values())
