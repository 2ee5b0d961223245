"""What a tenant writes holds up nobody else: each field of each kind, at its largest and worst.

What is measured is CPU time of this thread, in units of a linear reference on the same machine.
"""

from __future__ import annotations

import gc
import json
import time
from typing import TYPE_CHECKING, Final

import pytest

from controller.api import expression_syntax
from controller.api.kind import Kind
from controller.api.kinds import WATCHED, status_of
from controller.api.meta import ObjectKey, Resource, generation_of
from controller.app.reconcilers import STAGES
from controller.runtime.cache import Cache, Change
from controller.runtime.informer import Informer, transforms_of
from controller.runtime.result import spec_of
from controller.runtime.setbacks import Setback
from controller.runtime.watches import indexes_of, keys_to_wake
from tests.hostile_objects import CRDS, LARGEST, Hostile, hostile_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from controller.api.fields import Model

TYPES: Final = {each.kind: each for each in WATCHED}
LARGEST_OBJECT: Final = 1_000_000
STEP: Final = 25.0
"""Most that one step may take, in units: 250 ms for a megabyte, where a unit takes 10."""


def unit() -> float:
    """The CPU seconds of something linear: reading and writing JSON of the size of an object."""
    text = json.dumps({"items": ["abcdefgh"] * (LARGEST // 12)})
    return min(seconds(lambda: json.dumps(json.loads(text))) for _ in range(5))


def seconds(step: Callable[[], object]) -> float:
    began = time.thread_time()
    step()
    return time.thread_time() - began


@pytest.fixture(scope="module")
def allowed() -> float:
    # What is loaded for the first expression of a process is not of this one.
    expression_syntax.parse("true", frozenset())
    return STEP * unit()


def steps_of(hostile: Hostile) -> list[tuple[str, float]]:
    """What is done on the event loop when a watch reports the object: each step with its CPU time."""
    type_ = TYPES[hostile.kind]
    changes: list[Change] = []
    cache = Cache(indexes_of(STAGES))
    cache.react(changes.append)
    informer = Informer(cache, transforms_of([type_]))
    found = [("index", seconds(lambda: informer.learn(hostile.kind, hostile.body)))]
    body = {**hostile.body, "metadata": {**hostile.body["metadata"], "generation": 2, "resourceVersion": "2"}}
    found.append(("index again", seconds(lambda: informer.learn(hostile.kind, body))))
    found += [("wake", seconds(lambda each=each: keys_to_wake(STAGES, cache, each))) for each in changes]  # type: ignore[misc]
    resource = cache.get(ObjectKey(hostile.kind, "shop", "hostile"))
    assert resource is not None
    found.append(("status", seconds(lambda: (status_of(resource), generation_of(resource)))))
    if isinstance(type_, Kind) and type_.judged:
        messages: list[str] = []
        found.append(("spec", seconds(lambda: messages.append(message_of(type_.spec, resource)))))
        assert len(messages[0]) < 5_000, hostile.field
    return found


def message_of(model: type[Model], resource: Resource) -> str:
    """Why the spec is invalid; empty if it is not."""
    try:
        spec_of(model, resource)
    except Setback as setback:
        return setback.message
    return ""


def slow_steps(hostile: Hostile, allowed: float) -> dict[str, str]:
    """The steps that take too long with the object, by name, each with how long."""
    # A spec is read in a thread, once for each generation; one that the kind bounds does not grow.
    most = {"spec": allowed * (LARGEST_OBJECT / LARGEST)}
    return {
        step: f"{hostile.field} ({hostile.value}), {step}: {took / allowed:.1f} of what it may"
        for step, took in steps_of(hostile)
        if took > most.get(step, allowed)
    }


@pytest.fixture
def _no_collections() -> Iterator[None]:
    """A collection of all objects that other tests left is no time of a step."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collections")
@pytest.mark.parametrize("file", sorted(crd.stem for crd in CRDS.glob("*.yaml")))
def test_no_field_of_an_object_holds_up_the_event_loop(file: str, allowed: float) -> None:
    slow: list[str] = []
    for hostile in hostile_objects(file):
        steps = slow_steps(hostile, allowed)
        # What is slow once, as other processes filled the caches, is no fault of the step.
        for _ in range(2 if steps else 0):
            again = slow_steps(hostile, allowed)
            steps = {step: text for step, text in steps.items() if step in again}
        slow += steps.values()
    assert slow == []
