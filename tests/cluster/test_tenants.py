"""What one namespace may use of another, and as whom the controller acts for it, on a real API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.objects import Namespace, condition, flag_set, flags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.plane import Plane
    from tests.cluster.spines import Spine


@pytest.fixture
def neighbour(cluster: Plane, namespace: str) -> Iterator[Namespace]:
    """A second namespace of the test's own."""
    name = f"{namespace}-next"
    cluster.kubectl("create", "namespace", name)
    yield Namespace(cluster, name)
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def test_a_source_elsewhere_is_read_while_a_grant_there_lets_it(spine: Spine, neighbour: Namespace) -> None:
    reference = {"kind": "FlagSource", "name": "flags", "namespace": spine.name}
    neighbour.apply(flag_set(sourceRef=reference))
    refused = neighbour.wait_reason("flagset", "AccessDenied")
    assert condition(refused, "Stalled")["status"] == "True"
    grant = condition(refused, "Ready")["message"].partition("may apply: ")[2]
    spine.kubectl("apply", "--server-side", "-f", "-", given=grant)
    neighbour.wait_ready("flagset")
    assert neighbour.served() == {"banner": "on"}
    spine.push(flags__json=flags(banner="off"))
    neighbour.wait("ffc", lambda _: neighbour.served() == {"banner": "off"})
    spine.kubectl("delete", "flaggrants", "--all")
    neighbour.wait_reason("flagset", "AccessDenied")
    assert neighbour.served() == {"banner": "off"}
