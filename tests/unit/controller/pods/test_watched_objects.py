"""What admission keeps of the cluster's objects."""

from __future__ import annotations

from typing import Any

from controller.api.meta import ObjectKey
from controller.pods.known_objects import WATCHED, WatchedObjects


def body(kind: str) -> dict[str, Any]:
    meta = {"name": "checkout", "namespace": "shop", "uid": "1", "resourceVersion": "2"}
    return {"metadata": meta, "spec": {"flagSpec": {}}, "status": {"revision": "main@sha1:1"}}


def test_it_is_synced_once_every_kind_of_every_namespace_was_listed() -> None:
    watched = WatchedObjects(("shop", "till"))
    for type_ in WATCHED:
        assert not watched.synced
        watched.informer.end_listing(type_.kind, "shop")
        watched.informer.end_listing(type_.kind, "till")
    assert watched.synced


def test_flags_are_left_out_and_specs_of_settings_are_kept() -> None:
    watched = WatchedObjects(("",))
    for kind in ("FeatureFlagConfiguration", "FeatureFlagSource"):
        watched.informer.learn(kind, body(kind))
    flags = watched.objects.get(ObjectKey("FeatureFlagConfiguration", "shop", "checkout"))
    source = watched.objects.get(ObjectKey("FeatureFlagSource", "shop", "checkout"))
    assert flags is not None
    assert source is not None
    assert (dict(flags.spec), flags.status["revision"]) == ({}, "main@sha1:1")
    assert source.spec == {"flagSpec": {}}


def test_a_deleted_object_is_forgotten_and_a_malformed_one_ignored() -> None:
    watched = WatchedObjects(("",))
    watched.informer.learn("FlagSet", body("FlagSet"))
    watched.informer.learn("FlagSet", {"spec": {}})
    watched.informer.forget(ObjectKey("FlagSet", "shop", "checkout"))
    assert len(watched.objects) == 0
