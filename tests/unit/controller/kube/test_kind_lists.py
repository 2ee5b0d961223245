"""What is there before a watch begins, and what went while it was broken."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from controller.api.kinds import FLAG_SET, SECRET
from controller.api.meta import ObjectKey, Resource
from controller.kube.kopf_watches import KindLists, restart_for_new_kinds
from controller.runtime.cache import Cache
from controller.runtime.informer import Informer, transforms_of
from controller.runtime.setbacks import Failed
from controller.runtime.watch_health import WatchHealth
from tests.waiting import until

KEY = ObjectKey("FlagSet", "shop", "flags")
TYPES = (FLAG_SET, SECRET)


@dataclass
class Listing:
    """A cluster that is listed."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    """Raised first, one a call."""
    version: int = 9
    asked: list[str] = field(default_factory=list)

    async def everywhere(self, api_version: str, plural: str, *_: Any, content: bool = True) -> list[Any]:
        self.asked.append(f"{api_version}/{plural}" if content else f"metadata of {plural}")
        if self.errors:
            raise self.errors.pop(0)
        return [each for each in self.bodies if plural == FLAG_SET.plural]

    async def present(self, _version: str, plural: str, *_: Any) -> tuple[frozenset[str], int]:
        self.asked.append(plural)
        if self.errors:
            raise self.errors.pop(0)
        return frozenset(each["metadata"]["uid"] for each in self.bodies), self.version


@dataclass
class ListedKinds:
    cluster: Listing = field(default_factory=Listing)
    cache: Cache = field(default_factory=Cache)

    def __post_init__(self) -> None:
        self.informer = Informer(self.cache, transforms_of(TYPES), shared=True)
        self.lists = KindLists(self.informer, self.cluster, TYPES, (), again=0.001)

    async def compare(self) -> None:
        self.lists.on_relist()
        await self.lists.compare()


@pytest.fixture
def around() -> ListedKinds:
    return ListedKinds()


def body(uid: str = "u", version: str = "3") -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": "flags", "uid": uid, "resourceVersion": version}}


async def test_everything_is_listed_once_however_long_that_takes(
    around: ListedKinds, caplog: pytest.LogCaptureFixture
) -> None:
    around.cluster.bodies = [body(), {"metadata": "malformed"}]
    around.cluster.errors = [
        Failed("ApiServerUnavailable", "no"),
        Failed("ApiServerUnavailable", "no"),
        KeyError(),
    ]
    await around.lists.fill()
    assert around.informer.has_listed([type_.kind for type_ in TYPES], ("",))
    assert around.cache.get(KEY) is not None
    assert around.cluster.asked[-2:] == ["flagstaff.dev/v1beta1/flagsets", "metadata of secrets"]
    assert caplog.text.count("cannot be listed yet: no") == 1


async def test_an_object_that_went_unseen_is_forgotten(around: ListedKinds) -> None:
    around.cache.learn(Resource(KEY, "u", 1, "3"))
    await around.compare()
    assert around.cache.get(KEY) is None


async def test_an_object_that_is_newer_than_the_list_stays(around: ListedKinds) -> None:
    around.cache.learn(Resource(KEY, "u", 1, "10"))
    await around.compare()
    assert around.cache.get(KEY) is not None


@pytest.mark.parametrize("error", [Failed("ApiServerUnavailable", "no"), KeyError("odd")], ids=repr)
async def test_a_kind_that_cannot_be_compared_holds_up_no_other(
    around: ListedKinds, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    around.cluster.errors = [error]
    await around.compare()
    assert around.cluster.asked == ["flagsets", "secrets"]
    assert "with the cluster" in caplog.text


async def test_watches_begin_anew_once_for_a_kind_that_is_installed_and_not_watched(
    around: ListedKinds,
) -> None:
    health, restarts = WatchHealth(lambda: 0.0), []
    health.record_answer(SECRET.plural, "/api/v1/secrets")
    around.cluster.version = 0

    def restart() -> None:
        restarts.append(len(around.cluster.asked))

    task = asyncio.create_task(restart_for_new_kinds(around.lists, health, restart, 0.001))
    await until(lambda: len(around.cluster.asked) > 3)
    assert restarts == []
    around.cluster.version = 9
    await until(lambda: restarts)
    await asyncio.sleep(0.02)
    assert len(restarts) == 1
    assert set(around.cluster.asked) == {FLAG_SET.plural}
    task.cancel()
