"""Which Pods are gone."""

from __future__ import annotations

from typing import Any

from controller.api.meta import ObjectKey
from controller.proxy.watch import PodUids


def pod(name: str, uid: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": name, "uid": uid}}


def test_a_pod_that_goes_is_reported() -> None:
    gone: list[str] = []
    pods = PodUids(gone=gone.append)
    pods.informer.learn("Pod", pod("p", "1"))
    pods.informer.learn("Pod", pod("p", "1"))
    pods.informer.forget(ObjectKey("Pod", "shop", "p"))
    pods.informer.forget(ObjectKey("Pod", "shop", "p"))
    assert gone == ["1"]


def test_one_that_was_made_again_under_its_name_is_another() -> None:
    gone: list[str] = []
    pods = PodUids(gone=gone.append)
    pods.informer.learn("Pod", pod("p", "1"))
    pods.informer.learn("Pod", pod("p", "2"))
    assert (gone, pods.has_ended("2")) == (["1"], False)


def test_the_last_that_went_are_remembered() -> None:
    pods = PodUids(remembered=2)
    for uid in ("1", "2", "3"):
        pods.informer.learn("Pod", pod("p", uid))
    assert [pods.has_ended(uid) for uid in ("", "1", "2", "3")] == [False, True, True, False]
    pods.informer.forget(ObjectKey("Pod", "shop", "p"))
    assert [pods.has_ended(uid) for uid in ("1", "2", "3")] == [False, True, True]
