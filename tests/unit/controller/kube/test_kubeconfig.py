"""Files that are no kubeconfig, or whose content no client can use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kubernetes.aio import config

from controller.kube.kubeconfig import load_configuration

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "current-context: c\ncontexts: [{name: c, context: {cluster: x, user: u}}]\n"
SERVER = "https://127.0.0.1:1"
KEPT = (
    f"clusters: [{{name: x, cluster: {{server: '{SERVER}'}}}}]\nusers: [{{name: u, user: {{}}}}]\n".encode()
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [b\n", ":2:1: not YAML: expected ',' or ']'"),
        (b"a:\n\t- b\n", ":2:1: not YAML: a tab stands where only spaces may be"),
        (b"- a\n", "it is not a mapping of clusters and users"),
        (b"", "it is not a mapping of clusters and users"),
        (b"junk", "it is not a mapping of clusters and users"),
        (b"\xff\xfe\x00", "it is not text"),
        (b"clusters: 3\n", "clusters must be a list of objects"),
        (b"users: [3]\n", "users must be a list of objects"),
        (b"clusters: []\ncontexts: []\n", "is not a complete kubeconfig: current-context is missing"),
        (b"current-context: x\ncontexts: []\nclusters: []\n", ": there is no context named x"),
        (HEAD.encode() + b"clusters: []\nusers: []\n", ": there is no cluster named x"),
        (b"a: &x [*x]\n" + HEAD.encode() + KEPT, "an alias in it contains itself"),
        (
            f"{HEAD}clusters: [{{name: x, cluster: {{server: '127.0.0.1:1'}}}}]\nusers: []\n".encode(),
            "is not a URL",
        ),
        (
            f"{HEAD}clusters: [{{name: x, cluster: {{server: 'h:1'}}}}]\n"
            "users: [{name: u, user: {}}]\n".encode(),
            "server 'h:1' is not a URL",
        ),
        (
            f"{HEAD}clusters: [{{name: x, cluster: {{server: '{SERVER}', "
            "certificate-authority-data: aaaa}}]\n"
            "users: [{name: u, user: {}}]\n".encode(),
            "is not PEM",
        ),
    ],
)
async def test_unusable_kubeconfig_is_named_with_the_reason(
    content: bytes, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "config"
    file.write_bytes(content)
    with pytest.raises(config.ConfigException) as raised:
        await load_configuration(str(file))
    assert str(file) in str(raised.value)
    assert message in str(raised.value)


async def test_missing_program_for_credentials_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config"
    file.write_text(
        f"{HEAD}clusters: [{{name: x, cluster: {{server: '{SERVER}'}}}}]\n"
        "users: [{name: u, user: {exec: {command: no-such-program}}}]\n"
    )
    with pytest.raises(config.ConfigException, match="the program 'no-such-program', which gives user 'u'"):
        await load_configuration(str(file))
    assert capfd.readouterr().err == ""


async def test_missing_kubeconfig_and_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(config.ConfigException, match="none: no such file"):
        await load_configuration(str(tmp_path / "none"))
    with pytest.raises(config.ConfigException, match="cannot be read: Is a directory"):
        await load_configuration(str(tmp_path))
