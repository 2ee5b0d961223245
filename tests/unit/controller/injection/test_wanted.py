"""A pod's annotations, good and bad."""

from __future__ import annotations

import pytest

from controller.injection import names
from tests.unit.controller.injection.pods import injected, pod, refused


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("flagstaff.dev/flag-set", "x", "annotation flagstaff.dev/flag-set: unknown; did you mean flagstaff.dev/flagset?"),
        ("flagstaff.dev/zzz", "x", "annotation flagstaff.dev/zzz: unknown; there are flagset, containers,"),
        (names.FLAG_SET, None, 'annotation openfeature.dev/enabled is true: name the flag set too, as in flagstaff.dev/flagset: "'),
        (names.FLAG_SET, "other/checkout", "annotation flagstaff.dev/flagset: 'other/checkout' is in another namespace"),
        (names.FLAG_SET, "Check out", "annotation flagstaff.dev/flagset: 'Check out' is no object's name"),
        (names.CONTAINERS, " ,", "annotation flagstaff.dev/containers: names no container"),
        (names.IMAGE, "a b", "annotation flagstaff.dev/image: 'a b' is no image"),
        (names.RESOURCES, "64Mi", "annotation flagstaff.dev/resources: must be a JSON object"),
        (names.RESOURCES, '{"limit":{}}', "annotation flagstaff.dev/resources: must be a JSON object"),
        (names.RESOURCES, '{"limits":1}', "annotation flagstaff.dev/resources: limits must be an object"),
        (names.RESOURCES, '{"limits":{"cpu":"many"}}', "annotation flagstaff.dev/resources: limits.cpu is no amount"),
        (names.LOG_LEVEL, "loud", "annotation flagstaff.dev/log-level: is 'loud'; write one of debug, info, warning, error"),
        (names.SIDECAR, "yes", "annotation flagstaff.dev/sidecar: is 'yes'; write one of native, plain"),
        (names.PORT, "0", "annotation flagstaff.dev/port: is '0'; write a port from 1 to 65535"),
        (names.PORT, "70000", "annotation flagstaff.dev/port: is '70000'; write a port from 1 to 65535"),
        (names.SYNC_PORT, "8013", "annotation flagstaff.dev/sync-port: port 8013 is that of flagstaff.dev/port too"),
        (names.ENABLED, True, "annotation openfeature.dev/enabled: is no string; put it in quotes"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_what_to_write(name: str, text: str | None, told: str) -> None:
    assert refused(pod({name: text})).startswith(told)


def test_a_reference_of_openfeature_operator_s_is_answered_with_ours() -> None:
    found = refused(pod({names.FLAG_SET: None, "openfeature.dev/inprocessconfiguration": "flags"}))
    assert found.startswith(
        "annotation openfeature.dev/inprocessconfiguration is not supported: name the flag"
    )


def test_annotations_change_image_resources_level_and_ports() -> None:
    found = injected(
        pod(
            {
                names.FLAG_SET: "shop/checkout",
                names.IMAGE: "mine:2",
                names.RESOURCES: '{"limits":{"memory":"1Gi","cpu":2}}',
                names.LOG_LEVEL: "debug",
                names.MANAGEMENT_PORT: "9014",
                "example.com/other": "kept",
            }
        )
    )["spec"]["initContainers"][0]
    assert found["image"] == "mine:2"
    assert found["resources"] == {"limits": {"memory": "1Gi", "cpu": 2}}
    assert {"--log-level=debug", "--management-port=9014"} <= set(found["args"])
    assert {"name": "flags-mgmt", "containerPort": 9014, "protocol": "TCP"} in found["ports"]
