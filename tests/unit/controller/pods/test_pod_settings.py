"""A pod's annotations, good and bad."""

from __future__ import annotations

import pytest

from controller.pods import installation
from evaluator.cli import parse
from evaluator.settings import load
from tests.worlds.pods import changes_of, env, inject_pod, pod, refusal_of


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("flagstaff.dev/flag-set", "x", "unknown; did you mean flagstaff.dev/flagset?"),
        ("flagstaff.dev/zzz", "x", "unknown; there are flagset, containers,"),
        ("flagstaff.dev/flagset", "other/checkout", "no pod of shop may refer to FlagSet other/checkout"),
        ("flagstaff.dev/flagset", "Check out", "'Check out' is no object's name"),
        ("flagstaff.dev/containers", " ,", "names no container"),
        ("flagstaff.dev/image", "a b", "'a b' is no image"),
        ("flagstaff.dev/resources", "64Mi", "must be a JSON object"),
        ("flagstaff.dev/resources", '{"limit":{}}', "must be a JSON object"),
        ("flagstaff.dev/resources", '{"limits":1}', "limits must be an object"),
        ("flagstaff.dev/resources", '{"limits":{"cpu":"many"}}', "limits.cpu is no amount"),
        ("flagstaff.dev/log-level", "loud", "is 'loud'; write one of debug, info, warning, error"),
        ("flagstaff.dev/sidecar", "yes", "is 'yes'; write one of native, plain"),
        ("flagstaff.dev/port", "0", "is '0'; write a port from 1 to 65535"),
        ("flagstaff.dev/port", "70000", "is '70000'; write a port from 1 to 65535"),
        ("flagstaff.dev/sync-port", "8013", "port 8013 is that of flagstaff.dev/port too"),
        ("flagstaff.dev/on-missing-flags", "Hope", "is 'Hope'; write one of Wait, Start, Forever"),
        ("flagstaff.dev/start-deadline", "30", "is '30'; write a duration such as 30s"),
        ("flagstaff.dev/socket-path", "/tmp/f.sock", "is '/tmp/f.sock'; write a path in a folder"),
        ("flagstaff.dev/socket-path", "/var/run/f.sock", "is '/var/run/f.sock'; write a path"),
        ("flagstaff.dev/socket-path", "/a/../b/f.sock", "is '/a/../b/f.sock'; write a path"),
        ("flagstaff.dev/state-claim", "Not a name", "'Not a name' is no object's name"),
        ("openfeature.dev/enabled", True, "is no string; put it in quotes"),
    ],
)
def test_an_invalid_annotation_is_refused_with_what_to_write(name: str, text: str, message: str) -> None:
    assert refusal_of(pod({name: text})).startswith(f"annotation {name}: {message}")


def test_a_pod_that_asks_and_names_no_flag_set_is_told_how() -> None:
    said = refusal_of(pod({installation.FLAG_SET: None}))
    assert said.startswith(
        'annotation openfeature.dev/enabled is true: name the flag set too, as in flagstaff.dev/flagset: "'
    )


def test_annotations_change_image_resources_level_and_ports() -> None:
    found = inject_pod(
        pod(
            {
                installation.FLAG_SET: "shop/checkout",
                installation.IMAGE_ANNOTATION: "mine:2",
                installation.RESOURCES: '{"limits":{"memory":"1Gi","cpu":2}}',
                installation.LOG_LEVEL: "debug",
                installation.MANAGEMENT_PORT: "9014",
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
        ({installation.START_DEADLINE: "1m30s"}, "/startz", 150, ["--start-deadline=90s"]),
        ({installation.ON_MISSING: "Start"}, "/healthz", 60, []),
        ({installation.ON_MISSING: "Forever"}, "/startz", 1_000_060, []),
    ],
)
def test_an_application_waits_for_flags_as_its_annotation_says(
    annotations: dict[str, str], path: str, seconds: int, deadline: list[str]
) -> None:
    found = inject_pod(pod(annotations))["spec"]["initContainers"][0]
    probe = found["startupProbe"]
    assert (probe["httpGet"]["path"], probe["failureThreshold"] * probe["periodSeconds"]) == (path, seconds)
    assert [each for each in found["args"] if each.startswith("--start-deadline")] == deadline
    settings = load(parse(found["args"]), {}).settings
    assert settings.start_deadline < seconds


def test_a_socket_takes_the_place_of_the_port_and_is_shared_with_the_application() -> None:
    containers = [{"name": "app", "ports": [{"containerPort": 8013}]}, {"name": "log"}]
    annotations = {installation.SOCKET_PATH: "/var/run/flagd/flagd.sock", installation.CONTAINERS: "app"}
    spec = inject_pod(pod(annotations, containers=containers))["spec"]
    sidecar, (app, log) = spec["initContainers"][0], spec["containers"]
    settings = load(parse(sidecar["args"]), {}).settings
    assert (settings.socket_path, settings.socket_mode) == ("/var/run/flagd/flagd.sock", "0666")
    assert [each["name"] for each in sidecar["ports"]] == ["flags-mgmt", "flags-sync", "flags-ofrep"]
    mount = {"name": installation.SOCKET, "mountPath": "/var/run/flagd"}
    assert mount in sidecar["volumeMounts"]
    assert (app["volumeMounts"], "volumeMounts" in log) == ([mount], False)
    assert env(app)["FLAGD_SOCKET_PATH"] == "/var/run/flagd/flagd.sock"
    assert {"name": installation.SOCKET, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}} in spec[
        "volumes"
    ]


def test_a_folder_that_the_application_mounts_is_no_place_for_a_socket() -> None:
    containers = [{"name": "app", "volumeMounts": [{"name": "x", "mountPath": "/var/run/flagd"}]}]
    message = refusal_of(pod({installation.SOCKET_PATH: "/var/run/flagd/flagd.sock"}, containers=containers))
    assert message.startswith(
        "container app: mounts a volume at /var/run/flagd, where the evaluator's socket"
    )


def test_the_last_good_flags_may_lie_in_a_claim() -> None:
    changes = changes_of(pod({installation.STATE_CLAIM: "flags"}))
    volumes = {each["name"]: each for each in changes.after["spec"]["volumes"]}
    assert volumes[installation.STATE]["persistentVolumeClaim"] == {"claimName": "flags"}
    assert [each.partition(":")[0] for each in changes.warnings] == ["annotation flagstaff.dev/state-claim"]
    assert (
        changes_of(pod({installation.STATE_CLAIM: "flags"}, securityContext={"fsGroup": 65532})).warnings
        == ()
    )
