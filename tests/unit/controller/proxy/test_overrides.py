from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2

from controller.api import flagoverride
from controller.delivery.claims import KINDS
from controller.proxy.watch import PROGRESS
from evaluator.resolving.resolve import compile_flag_set, resolve
from tests.waiting import until
from tests.worlds.flags import flag_set_of
from tests.worlds.proxy import Scene, large
from tests.worlds.stages import written_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.worlds.evaluator import FakeStream


def flags(**more: object) -> dict[str, Any]:
    flag = {"state": "ENABLED", "variants": {"on": "yes", "off": "no"}, "defaultVariant": "on", **more}
    return {"flags": {"hello": flag}}


def documents(stream: FakeStream) -> list[Mapping[str, Any]]:
    return [
        json.loads(sync_pb2.SyncFlagsResponse.FromString(message).flag_configuration)
        for message in stream.sent
    ]


def overrides(stream: FakeStream) -> list[str | None]:
    """The override of the flag `hello`, message by message."""
    return [
        each["flags"]["hello"].get("metadata", {}).get("flagstaff.dev/override") for each in documents(stream)
    ]


async def test_an_override_is_sent_when_it_begins_and_when_it_is_deleted() -> None:
    scene = Scene()
    scene.learn("shop/checkout", flags())
    stream = scene.open("shop/checkout")
    await scene.rest()
    scene.override("shop/off", "checkout", variant="off")
    await scene.rest()
    scene.forget("shop/off", flagoverride.KIND)
    await scene.rest()
    assert overrides(stream) == [None, "off", None]
    first, _, last = documents(stream)
    assert first == last
    scene.proxy.close()


async def test_the_proxy_ends_an_override_by_itself() -> None:
    scene = Scene()
    scene.learn("shop/checkout", flags())
    scene.override("shop/off", "checkout", disabled=True)
    stream = scene.open("shop/checkout")
    await scene.rest()
    assert [each["flags"]["hello"]["state"] for each in documents(stream)] == ["DISABLED"]
    scene.now += 1
    await until(lambda: len(stream.sent) == 2, seconds=5)
    assert documents(stream)[1]["flags"]["hello"]["state"] == "ENABLED"
    assert not len(scene.proxy.progress)
    scene.proxy.close()


async def test_an_override_names_the_flag_set_that_wrote_the_object() -> None:
    scene = Scene()
    scene.learn("shop/checkout-eu", flags(), **written_by("checkout"))
    stream = scene.open("shop/checkout-eu")
    await scene.rest()
    scene.override("shop/off", "checkout", variant="off")
    await scene.rest()
    assert overrides(stream) == [None, "off"]
    scene.proxy.close()


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"flagSetRef": {"name": "other"}}, id="another set"),
        pytest.param({"flag": "bye"}, id="another flag"),
        pytest.param({"variant": "of"}, id="an unknown variant"),
        pytest.param({"variant": None}, id="neither variant nor disabled"),
        pytest.param({"expiresAt": "1970-01-01T00:00:00Z"}, id="expired"),
        pytest.param({"expiresAt": "soon"}, id="no time"),
        pytest.param({"flagSetRef": None}, id="no set"),
    ],
)
async def test_an_override_that_is_not_in_force_is_not_sent(spec: dict[str, Any]) -> None:
    scene = Scene()
    scene.learn("shop/checkout", flags())
    stream = scene.open("shop/checkout")
    await scene.rest()
    scene.override("shop/off", "checkout", **{"variant": "off", **spec})
    scene.override("billing/off", "checkout", variant="off")
    await scene.rest()
    assert overrides(stream) == [None]
    scene.proxy.close()


async def test_a_large_set_is_sent_with_its_override() -> None:
    scene = Scene()
    scene.learn("shop/checkout", large("yes"))
    stream = scene.open("shop/checkout")
    await scene.rest()
    scene.override("shop/on", "checkout", variant="on")
    await scene.rest()
    assert overrides(stream) == [None, "on"]
    scene.proxy.close()


async def test_nothing_is_sent_before_the_overrides_are_known() -> None:
    scene = Scene(synced=False)
    scene.learn("shop/checkout", flags())
    stream = scene.open("shop/checkout")
    for kind in KINDS:
        scene.informer.end_listing(kind, "")
    await scene.rest()
    assert not stream.sent
    scene.override("shop/off", "checkout", variant="off")
    for kind in PROGRESS:
        scene.informer.end_listing(kind, "")
    await scene.rest()
    assert overrides(stream) == ["off"]
    scene.proxy.close()


async def test_a_bad_change_beneath_an_override_holds_the_definition_and_not_the_override() -> None:
    scene = Scene()
    scene.learn("shop/checkout", flags())
    scene.override("shop/off", "checkout", variant="off")
    stream = scene.open("shop/checkout")
    await scene.rest()
    scene.learn("shop/checkout", flags(defaultVariant="typo"))
    await scene.rest()
    scene.forget("shop/off", flagoverride.KIND)
    await scene.rest()
    last = documents(stream)[-1]["flags"]["hello"]
    assert last["defaultVariant"] == "on"
    assert "targeting" not in last
    scene.proxy.close()


CHANGES: dict[str, dict[str, Any]] = {
    "another value": {"variants": {"on": "yes", "off": "never"}},
    "no such variant": {"variants": {"on": "yes"}},
    "disabled": {"state": "DISABLED"},
}


def served_values(stream: FakeStream) -> list[object]:
    """What the flag `hello` gives everybody, message by message."""
    return [
        resolve(compile_flag_set(flag_set_of(sent)), "hello", None, {}, 0).value for sent in documents(stream)
    ]


@pytest.mark.parametrize("change", [*CHANGES, "no such flag"])
async def test_without_a_controller_the_proxy_keeps_the_value_of_an_override(change: str) -> None:
    scene = Scene()
    scene.learn("shop/checkout", flags())
    stream = scene.open("shop/checkout")
    await scene.rest()
    scene.override("shop/off", "checkout", variant="off")
    await scene.rest()
    scene.learn("shop/checkout", flags(**CHANGES[change]) if change in CHANGES else {"flags": {}})
    await scene.rest()
    assert served_values(stream)[:2] == ["yes", "no"]
    assert set(served_values(stream)[1:]) == {"no"}
    scene.proxy.close()


async def test_a_new_proxy_serves_what_the_status_of_an_override_keeps() -> None:
    scene = Scene()
    scene.learn("shop/checkout", flags(**CHANGES["another value"]))
    kept = {"flagSet": "checkout", "flag": "hello", "variant": "off", "value": '"no"'}
    scene.override("shop/off", "checkout", variant="off", status={"kept": kept})
    stream = scene.open("shop/checkout")
    await scene.rest()
    assert served_values(stream) == ["no"]
    scene.proxy.close()


async def test_what_the_controller_keeps_too_is_not_sent_again() -> None:
    scene = Scene()
    scene.learn("shop/checkout", flags())
    scene.override("shop/off", "checkout", variant="off")
    stream = scene.open("shop/checkout")
    await scene.rest()
    built = scene.proxy.deliveries.contents.built
    kept = {"flagSet": "checkout", "flag": "hello", "variant": "off", "value": '"no"'}
    scene.override("shop/off", "checkout", variant="off", status={"kept": kept})
    await scene.rest()
    assert (scene.proxy.deliveries.contents.built, len(stream.sent)) == (built, 1)
    scene.proxy.close()
