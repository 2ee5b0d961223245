"""What a caller may see of flag sets of the same source."""

from __future__ import annotations

from controller.app.cluster_objects import ClusterObjects
from controller.app.cluster_page import ClusterPage, ShownSets
from tests.worlds.page import flag


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
