"""What becomes of the objects that an engine reports."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.kinds import FLAG_SET
from controller.api.meta import ObjectKey
from controller.runtime.cache import Cache
from controller.runtime.informer import Informer, transforms_of

if TYPE_CHECKING:
    from controller.runtime.cache import Change


def informer_of(*, shared: bool = False) -> Informer:
    return Informer(Cache(), transforms_of([FLAG_SET]), shared=shared)


def body(name: str, version: int = 1, **spec: Any) -> dict[str, Any]:
    meta = {"namespace": "shop", "name": name, "uid": f"u-{name}", "resourceVersion": str(version)}
    return {"metadata": meta, "spec": spec}


@pytest.mark.parametrize("malformed", [{"metadata": None}, {}, body("odd", target=None)], ids=repr)
def test_a_malformed_object_is_logged_and_affects_no_other(
    malformed: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    informer, targets = informer_of(), []

    def note_target(change: Change) -> None:
        targets.append(change.latest.spec["target"]["name"])

    informer.store.react(note_target)
    informer.learn("FlagSet", malformed)
    informer.learn("FlagSet", body("good", target={"name": "live"}))
    assert targets == ["live"]
    assert "a malformed FlagSet was sent" in caplog.text


@pytest.mark.parametrize(("shared", "kept"), [(False, "1"), (True, "2")])
def test_an_older_version_counts_where_nobody_else_writes(shared: bool, kept: str) -> None:
    informer = informer_of(shared=shared)
    for version in (2, 1):
        informer.learn("FlagSet", body("flags", version))
    (known,) = informer.store
    assert known.resource_version == kept


def test_a_deletion_of_another_object_of_that_name_removes_nothing() -> None:
    informer = informer_of()
    key = informer.learn("FlagSet", body("flags"))
    informer.forget(key, "u-another")
    assert informer.store.get(key) is not None
    informer.forget(key, "u-flags")
    assert informer.store.get(ObjectKey("FlagSet", "shop", "flags")) is None


async def test_all_are_listed_once_each_kind_was_in_each_namespace() -> None:
    informer, lists = informer_of(), []
    informer.react_to_list(lambda: lists.append(1))
    waiting = asyncio.create_task(informer.wait_listed(("FlagSet",), ("shop", "bank")))
    informer.end_listing("FlagSet", "shop")
    await asyncio.sleep(0)
    assert (informer.has_listed(("FlagSet",), ("shop", "bank")), waiting.done()) == (False, False)
    informer.end_listing("FlagSet", "bank")
    await waiting
    assert (informer.has_listed(("FlagSet",), ("shop", "bank")), len(lists)) == (True, 2)
