"""A pod's annotations, good and bad."""

from __future__ import annotations

import pytest

from controller.injection import names
from evaluator.cli import parse
from evaluator.settings import load
from tests.unit.controller.injection.pods import changed, env, injected, pod, refused


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("flagstaff.dev/flag-set", "x", "annotation flagstaff.dev/flag-set: unknown; did you mean flagstaff.dev/flagset?"),
        ("flagstaff.dev/zzz", "x", "annotation flagstaff.dev/zzz: unknown; there are flagset, containers,"),
        (names.FLAG_SET, None, 'annotation openfeature.dev/enabled is true: name the flag set too, as in flagstaff.dev/flagset: "'),
        (names.FLAG_SET, "other/checkout", "annotation flagstaff.dev/flagset: no pod of shop may refer to FlagSet other/checkout"),
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
        (names.ON_MISSING, "Hope", "annotation flagstaff.dev/on-missing-flags: is 'Hope'; write one of Wait, Start, Forever"),
        (names.START_DEADLINE, "30", "annotation flagstaff.dev/start-deadline: is '30'; write a duration such as 30s"),
        (names.SOCKET_PATH, "/tmp/f.sock", "annotation flagstaff.dev/socket-path: is '/tmp/f.sock'; write a path in a folder"),
        (names.SOCKET_PATH, "/var/run/f.sock", "annotation flagstaff.dev/socket-path: is '/var/run/f.sock'; write a path"),
        (names.SOCKET_PATH, "/a/../b/f.sock", "annotation flagstaff.dev/socket-path: is '/a/../b/f.sock'; write a path"),
        (names.STATE_CLAIM, "Not a name", "annotation flagstaff.dev/state-claim: 'Not a name' is no object's name"),
        (names.ENABLED, True, "annotation openfeature.dev/enabled: is no string; put it in quotes"),
    ],
)  # fmt: skip
def test_an_invalid_annotation_is_refused_with_what_to_write(
    name: str, text: str | None, message: str
) -> None:
    assert refused(pod({name: text})).startswith(message)


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


@pytest.mark.parametrize(
    ("annotations", "path", "seconds", "deadline"),
    [
        ({}, "/startz", 90, ["--start-deadline=30s"]),
        ({names.START_DEADLINE: "1m30s"}, "/startz", 150, ["--start-deadline=90s"]),
        ({names.ON_MISSING: "Start"}, "/healthz", 60, []),
        ({names.ON_MISSING: "Forever"}, "/startz", 1_000_060, []),
    ],
)
def test_an_application_waits_for_flags_as_its_annotation_says(
    annotations: dict[str, str], path: str, seconds: int, deadline: list[str]
) -> None:
    found = injected(pod(annotations))["spec"]["initContainers"][0]
    probe = found["startupProbe"]
    assert (probe["httpGet"]["path"], probe["failureThreshold"] * probe["periodSeconds"]) == (path, seconds)
    assert [each for each in found["args"] if each.startswith("--start-deadline")] == deadline
    settings = load(parse(found["args"]), {}).settings
    assert settings.start_deadline < seconds


def test_a_socket_takes_the_place_of_the_port_and_is_shared_with_the_application() -> None:
    containers = [{"name": "app", "ports": [{"containerPort": 8013}]}, {"name": "log"}]
    annotations = {names.SOCKET_PATH: "/var/run/flagd/flagd.sock", names.CONTAINERS: "app"}
    spec = injected(pod(annotations, containers=containers))["spec"]
    sidecar, (app, log) = spec["initContainers"][0], spec["containers"]
    settings = load(parse(sidecar["args"]), {}).settings
    assert (settings.socket_path, settings.socket_mode) == ("/var/run/flagd/flagd.sock", "0666")
    assert [each["name"] for each in sidecar["ports"]] == ["flags-mgmt", "flags-sync", "flags-ofrep"]
    mount = {"name": names.SOCKET, "mountPath": "/var/run/flagd"}
    assert mount in sidecar["volumeMounts"]
    assert (app["volumeMounts"], "volumeMounts" in log) == ([mount], False)
    assert env(app)["FLAGD_SOCKET_PATH"] == "/var/run/flagd/flagd.sock"
    assert {"name": names.SOCKET, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}} in spec["volumes"]


def test_a_folder_that_the_application_mounts_is_no_place_for_a_socket() -> None:
    containers = [{"name": "app", "volumeMounts": [{"name": "x", "mountPath": "/var/run/flagd"}]}]
    message = refused(pod({names.SOCKET_PATH: "/var/run/flagd/flagd.sock"}, containers=containers))
    assert message.startswith(
        "container app: mounts a volume at /var/run/flagd, where the evaluator's socket"
    )


def test_the_last_good_flags_may_lie_in_a_claim() -> None:
    changes = changed(pod({names.STATE_CLAIM: "flags"}))
    volumes = {each["name"]: each for each in changes.after["spec"]["volumes"]}
    assert volumes[names.STATE]["persistentVolumeClaim"] == {"claimName": "flags"}
    assert [each.partition(":")[0] for each in changes.warnings] == ["annotation flagstaff.dev/state-claim"]
    assert changed(pod({names.STATE_CLAIM: "flags"}, securityContext={"fsGroup": 65532})).warnings == ()
