"""What every verb that runs until it is stopped has in common."""

from __future__ import annotations

import argparse
from functools import partial

import pytest
from kubernetes.aio.config.config_exception import ConfigException

from controller.cli import proxy
from controller.cli.shared import running
from controller.settings import ControllerSettings, InvalidSettingError


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    running.configure(parser, ControllerSettings, lambda _: 0)
    return parser.parse_args(words)


def ended(error: Exception | None, *words: str) -> int:
    async def work(_: ControllerSettings) -> None:
        if error is not None:
            raise error

    read = partial(running.settings, ControllerSettings)
    return running.run("verb", parsed(*words), read, work)


def test_the_command_line_goes_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAGSTAFF_WORKERS", "3")
    monkeypatch.setenv("FLAGSTAFF_HOST", "127.0.0.1")
    settings = running.settings(ControllerSettings, parsed("--workers", "5"))
    assert (settings.workers, settings.host) == (5, "127.0.0.1")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (None, 0, ""),
        (InvalidSettingError("--x is bad"), 2, "flagstaff verb: --x is bad\n"),
        (OSError("the port is taken"), 3, "flagstaff verb: the port is taken\n"),
        (ConfigException("no context"), 3, "flagstaff verb: kubeconfig: no context\n"),
    ],
    ids=["stopped", "a setting", "a port", "a kubeconfig"],
)
def test_how_the_work_ends_is_the_exit_code(
    error: Exception | None, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(error) == code
    assert capsys.readouterr().err == message


def test_a_kubeconfig_that_is_named_is_named_in_what_it_lacks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended(ConfigException("no context"), "--kubeconfig", "/there") == 3
    assert capsys.readouterr().err == "flagstaff verb: /there: no context\n"


def test_a_setting_that_cannot_be_used_ends_it_before_the_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended(RuntimeError("it began"), "--workers", "many") == 2
    assert "--workers is 'many'" in capsys.readouterr().err


@pytest.mark.parametrize(("given", "debug"), [("true", True), ("1", True), ("false", False), ("", False)])
def test_the_operators_variable_has_its_proxy_log_more(
    given: str, debug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAGD_PROXY_DEBUG_LOGGING", given)
    parser = argparse.ArgumentParser()
    proxy.configure(parser)
    assert parser.parse_args([]).verbose is debug
    assert parser.parse_args(["--verbose"]).verbose is True
