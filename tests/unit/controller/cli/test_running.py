"""What every verb that runs until it is stopped has in common."""

from __future__ import annotations

import argparse

import pytest
from kubernetes.aio.config.config_exception import ConfigException

from controller.app.settings import ControllerSettings, InvalidOptionError
from controller.cli import processes
from controller.cli.printing import Exit


def parse_arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    processes.configure_process(parser, ControllerSettings, lambda _: 0)
    return parser.parse_args(words)


def end_with(error: Exception | None, *words: str) -> tuple[int, str]:
    """(the exit code, why it ended)."""

    async def work(_: ControllerSettings) -> None:
        if error is not None:
            raise error

    try:
        return processes.run_process(parse_arguments(*words), ControllerSettings, work), ""
    except Exit as end:
        return end.code, str(end)


def test_the_command_line_goes_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAGSTAFF_WORKERS", "3")
    monkeypatch.setenv("FLAGSTAFF_HOST", "127.0.0.1")
    settings = processes.settings(ControllerSettings, parse_arguments("--workers", "5"))
    assert (settings.workers, settings.host) == (5, "127.0.0.1")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (None, 0, ""),
        (InvalidOptionError("--x is bad"), 2, "--x is bad"),
        (OSError("the port is taken"), 3, "the port is taken"),
        (ConfigException("no context"), 3, "cannot find a cluster: no context"),
    ],
    ids=["stopped", "a setting", "a port", "a kubeconfig"],
)
def test_how_the_work_ends_is_the_exit_code(error: Exception | None, code: int, message: str) -> None:
    assert end_with(error) == (code, message)


def test_a_setting_that_cannot_be_used_ends_it_before_the_work() -> None:
    code, why = end_with(RuntimeError("it began"), "--workers", "many")
    assert code == 2
    assert "--workers is 'many'" in why


@pytest.mark.parametrize(("given", "debug"), [("true", True), ("1", True), ("false", False), ("", False)])
def test_the_operators_variable_has_its_proxy_log_more(
    given: str, debug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAGD_PROXY_DEBUG_LOGGING", given)
    parser = argparse.ArgumentParser()
    processes.configure_proxy(parser)
    assert parser.parse_args([]).verbose is debug
    assert parser.parse_args(["--verbose"]).verbose is True
