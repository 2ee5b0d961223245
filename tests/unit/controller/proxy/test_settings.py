"""How a proxy is configured."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from controller.app.settings import AuthMode, InvalidOptionError, ProxySettings, settings_of
from controller.cli import main, processes
from controller.cli import processes as cli

PAGE = Path(__file__).parents[4] / "docs/reference/proxy.md"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    cli.configure_proxy(made)
    return made


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("auth", "enforce", AuthMode.ENFORCE),
        ("auth_audiences", "a, b", ("a", "b")),
        ("auth_audiences", "", ()),
        ("context", '{"region": "eu"}', {"region": "eu"}),
        ("sync_port", "0", 0),
        ("namespaces", "shop,web", ("shop", "web")),
    ],
)
def test_a_setting_is_read_alike_from_the_environment_and_the_command_line(
    name: str, text: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv(f"FLAGSTAFF_{name.upper()}", text)
        by_environment = settings_of(ProxySettings)
    options = parser().parse_args([f"--{name.replace('_', '-')}", text])
    assert getattr(by_environment, name) == getattr(processes.settings(ProxySettings, options), name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("AUTH", "yes"), ("CONTEXT", "[1]"), ("CONTEXT", "{"), ("SYNC_PORT", "65536"), ("MAX_STREAMS", "-1"),
        ("DRAIN_DELAY", "1.5"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"FLAGSTAFF_{name}", text)
    with pytest.raises(InvalidOptionError, match=f"FLAGSTAFF_{name} is "):
        settings_of(ProxySettings)


@pytest.mark.parametrize("words", [["--tls-cert", "c"], ["--tls-key", "k"], ["--tls-client-ca", "c"]])
def test_half_a_certificate_ends_the_start(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["proxy", *words]) == 2
    assert "--tls-cert" in capsys.readouterr().err


def test_every_setting_has_an_option_and_stands_on_the_page() -> None:
    options = parser().format_help()
    page = PAGE.read_text(encoding="utf-8")
    names = [f"--{name.replace('_', '-')}" for name in ProxySettings.model_fields]
    assert [each for each in names if each not in options or f"`{each}`" not in page] == []
