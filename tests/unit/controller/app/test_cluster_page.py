"""What a caller may see of flag sets of the same source."""

from __future__ import annotations

from controller.app.cluster_objects import ClusterObjects
from controller.app.cluster_page import ClusterPage, ShownSets
from tests.worlds.delivery import NEW, OLD, flag_set, rollout, set_object
from tests.worlds.page import flag
from tests.worlds.stages import body_of


def test_a_flag_is_compared_in_the_sets_of_the_same_source() -> None:
    cluster = ClusterObjects(0)
    for name, source, on in (("live", "flags", False), ("staging", "flags", True), ("other", "more", True)):
        meta = {"namespace": "shop", "name": name}
        managers = [{"manager": f"flagstaff-flagset/shop/{name}"}]
        written = {"labels": {"flagstaff.dev/flagset": name}, "managedFields": managers}
        spec = {"sourceRef": {"kind": "FlagSource", "name": source}}
        cluster.informer.learn("FlagSet", {"metadata": meta, "spec": spec})
        flags = {"flagSpec": {"flags": {"pay": flag(on=on)}}}
        cluster.informer.learn("FeatureFlagConfiguration", {"metadata": {**meta, **written}, "spec": flags})
    sets = ShownSets(cluster.objects, lambda: 0.0)
    compared = ClusterPage(cluster, sets, frozenset({"shop"})).environments("shop/live", "pay")
    defaults = {shown.name: shown.flag_set.flags["pay"].default_variant for shown in compared}
    assert defaults == {"shop/live": "off", "shop/staging": "on"}
    assert ClusterPage(cluster, sets, frozenset({"bank"})).environments("shop/live", "pay") == ()


def test_how_far_a_commit_is_in_a_rollout_is_for_who_sees_the_namespace() -> None:
    cluster = ClusterObjects(0)
    for resource in (flag_set(), set_object(), rollout(promotedRevisions=[OLD])):
        cluster.informer.learn(resource.key.kind, body_of(resource))
    sets = ShownSets(cluster.objects, lambda: 0.0)
    page = ClusterPage(cluster, sets, frozenset({"shop"}))
    answers = [page.promotion("shop/checkout", revision) for revision in (OLD, NEW)]
    assert [answer and answer.done for answer in answers] == [True, False]
    assert page.promotion("shop/other", OLD) is None
    assert ClusterPage(cluster, sets, frozenset({"bank"})).promotion("shop/checkout", OLD) is None
