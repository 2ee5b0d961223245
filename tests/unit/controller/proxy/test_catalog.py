"""Which object is served under a name or a flagSetId, in whatever order they come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api.featureflagconfiguration import FLAG_KIND, KIND
from controller.api.meta import SHARD_KEY, ObjectKey
from controller.proxy.catalog import EncodedSpec, ObjectCatalog, decode_spec
from controller.proxy.watch import informer_of_objects

if TYPE_CHECKING:
    from controller.runtime.informer import Informer

PLACES = st.tuples(st.sampled_from("ab"), st.sampled_from("xy"))


def empty_catalog() -> tuple[ObjectCatalog, Informer]:
    """One, and what fills it."""
    informer = informer_of_objects()
    catalog = ObjectCatalog(informer.store)
    informer.store.react(catalog.follow)
    return catalog, informer


def body(place: tuple[str, str], flag_set_id: str = "", created: int = 1, number: int = 1) -> dict[str, Any]:
    metadata = {"flagSetId": flag_set_id} if flag_set_id else {}
    return {
        "apiVersion": "core.openfeature.dev/v1beta1",
        "metadata": {"namespace": place[0], "name": place[1], "uid": f"{place}{created}",
                     "generation": number, "creationTimestamp": f"2026-01-{created:02}T00:00:00Z"},
        "spec": {"flagSpec": {"flags": {}, "metadata": metadata}},
    }  # fmt: skip


EVENTS = st.lists(
    st.tuples(
        st.sampled_from([KIND, FLAG_KIND]),
        PLACES,
        st.sampled_from(["", "one", "two", None]),
        st.integers(1, 5),
    ),
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@given(EVENTS)
def test_claims_are_those_of_the_objects_that_are_served_the_oldest_in_front(events: Any) -> None:
    catalog, informer = empty_catalog()
    there: dict[tuple[str, tuple[str, str]], tuple[str, int]] = {}
    for number, (kind, place, claim, created) in enumerate(events, 1):
        if claim is None:
            informer.forget(ObjectKey(kind, *place))
            there.pop((kind, place), None)
        else:
            informer.learn(kind, body(place, claim, created, number))
            there[kind, place] = claim, created
    served = {place: there.get((KIND, place)) or there[FLAG_KIND, place] for _, place in there}
    for wanted in ("one", "two"):
        expected = sorted((c, place) for place, (claim, c) in served.items() if claim == wanted)
        assert catalog.holders(wanted) == [place for _, place in expected]


def test_an_object_that_its_flag_set_lets_go_is_in_conflict_from_then_on() -> None:
    catalog, informer = empty_catalog()
    for kind in (KIND, FLAG_KIND):
        object_body = body(("a", "x"))
        object_body["metadata"]["labels"] = {"flagstaff.dev/flagset": "x", "app": "x"}
        object_body["metadata"]["managedFields"] = [{"manager": "flagstaff-flagset/a/x"}]
        informer.learn(kind, object_body)
    assert list(catalog.claims.conflicts()) == []
    informer.learn(FLAG_KIND, body(("a", "x")))
    assert [each.reason for each in catalog.claims.conflicts()] == ["Shadowed"]


def test_only_annotations_of_ours_are_kept() -> None:
    catalog, informer = empty_catalog()
    object_body = body(("a", "x"))
    object_body["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": "…",
        "flagstaff.dev/observed-at": "t",
    }
    informer.learn(KIND, object_body)
    seen = catalog.object_at(("a", "x"))
    assert seen is not None
    assert seen.annotations == {"flagstaff.dev/observed-at": "t"}


def test_of_labels_the_flag_set_and_the_shard_are_kept() -> None:
    catalog, informer = empty_catalog()
    object_body, kept = body(("a", "x")), {"flagstaff.dev/flagset": "x", SHARD_KEY: "shard1"}
    object_body["metadata"]["labels"] = {**kept, "app": "x"}
    informer.learn(KIND, object_body)
    seen = catalog.object_at(("a", "x"))
    assert seen is not None
    assert seen.labels == kept


def test_of_labels_those_that_the_flag_set_has_set_are_kept() -> None:
    """A shard may have any key; what others have set on the object is theirs."""
    catalog, informer = empty_catalog()
    object_body, kept = body(("a", "x")), {"flagstaff.dev/flagset": "x", "team": "shop"}
    object_body["metadata"]["labels"] = {**kept, "app.kubernetes.io/instance": "argo"}
    object_body["metadata"]["managedFields"] = [
        {"manager": "argocd", "fieldsV1": fields_of("app.kubernetes.io/instance")},
        {"manager": "flagstaff-flagset/a/x", "fieldsV1": fields_of("flagstaff.dev/flagset", "team")},
        {"manager": "flagstaff-flagset/a/y", "fieldsV1": "odd"},
    ]
    informer.learn(KIND, object_body)
    seen = catalog.object_at(("a", "x"))
    assert seen is not None
    assert seen.labels == kept


def fields_of(*labels: str) -> dict[str, Any]:
    """What an API server says of a manager of these labels."""
    return {"f:metadata": {"f:labels": {f"f:{label}": {} for label in labels}}, "f:spec": {}}


def test_the_flag_set_id_of_a_sharded_set_stands_in_its_shards() -> None:
    catalog, informer = empty_catalog()
    object_body = body(("a", "x"))
    object_body["spec"] = {"shards": [{"name": "s", "digest": "s"}]}
    informer.learn(KIND, object_body)
    part = body(("a", "s"))
    part["spec"] = {"digest": "s", "flagSpec": {"flags": {}, "metadata": {"flagSetId": "id"}}}
    informer.learn("FlagShard", part)
    assert catalog.holders("id") == [("a", "x")]
    informer.forget(ObjectKey("FlagShard", "a", "s"))
    assert catalog.holders("id") == []


def test_a_version_changes_with_the_spec_and_with_each_shard_and_with_nothing_else() -> None:
    catalog, informer = empty_catalog()
    object_body = body(("a", "x"))
    object_body["spec"] = {"shards": [{"name": "s", "digest": "s"}]}
    informer.learn(KIND, object_body)
    first = catalog.version(("a", "x"))
    object_body["status"] = {"flags": 1}
    informer.learn(KIND, object_body)
    assert catalog.version(("a", "x")) == first
    informer.learn("FlagShard", body(("a", "s")))
    whole = catalog.version(("a", "x"))
    informer.learn(KIND, object_body | {"metadata": object_body["metadata"] | {"generation": 2}})
    assert len({first, whole, catalog.version(("a", "x"))}) == 3
    informer.forget(ObjectKey(KIND, "a", "x"))
    assert catalog.version(("a", "x")) is None


def test_an_object_that_was_gone_may_come_back_as_it_was() -> None:
    catalog, informer = empty_catalog()
    informer.learn(KIND, body(("a", "x")))
    informer.forget(ObjectKey(KIND, "a", "x"))
    informer.learn(KIND, body(("a", "x")))
    assert catalog.object_at(("a", "x")) is not None


def test_a_spec_is_kept_as_text() -> None:
    catalog, informer = empty_catalog()
    informer.learn(KIND, body(("a", "x"), "id"))
    seen = catalog.object_at(("a", "x"))
    assert seen is not None
    assert isinstance(seen.spec, EncodedSpec)
    assert decode_spec(seen).spec == dict(seen.spec) == body(("a", "x"), "id")["spec"]
