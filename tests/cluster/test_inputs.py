"""What a FlagSet takes from ConfigMaps and Secrets, on a real API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cluster.patience import within
from tests.worlds.flags import flags
from tests.worlds.objects import flag_set, secret

if TYPE_CHECKING:
    from tests.cluster.spines import Spine


def test_flags_follow_the_config_map_and_the_secret_that_their_variables_come_from(spine: Spine) -> None:
    kept = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "colours"}, "data": {"A": "on"}}
    references = [{"kind": "ConfigMap", "name": "colours"}, {"kind": "Secret", "name": "tokens"}]
    spine.push(flags__json=flags(a="${A}", b="${B:=on}", c="${C}"))
    spine.apply(kept, flag_set(substituteFrom=references))
    spine.wait_reason("flagset", "SubstitutionFailed")
    spine.apply(secret("tokens", C="off"))
    within(lambda: spine.served_variants() == {"a": "on", "b": "on", "c": "off"})
    spine.apply({**kept, "data": {"A": "off"}})
    within(lambda: spine.served_variants() == {"a": "off", "b": "on", "c": "off"})
    spine.apply(secret("tokens", C="on", B="off"))
    within(lambda: spine.served_variants() == {"a": "off", "b": "off", "c": "on"})
    found = spine.get("ffc")["spec"]["flagSpec"]["flags"]
    assert [key for key, each in found.items() if each.get("metadata")] == ["b", "c"]
