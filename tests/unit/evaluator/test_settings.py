from __future__ import annotations

import pytest

from evaluator.settings import InvalidSettingError, Settings, from_env


def test_an_empty_environment_gives_flagds_defaults() -> None:
    settings = from_env({})
    assert settings == Settings()
    assert (settings.port, settings.management_port, settings.ofrep_port) == (8013, 8014, 8016)


def test_every_variable_is_read() -> None:
    settings = from_env(
        {
            "FLAGSTAFF_HOST": "127.0.0.1",
            "FLAGD_PORT": "0",
            "FLAGD_MANAGEMENT_PORT": "1",
            "FLAGD_OFREP_PORT": "2",
            "FLAGD_STREAM_DEADLINE": "1m30s",
            "FLAGD_MAX_REQUEST_BODY": "0",
            "FLAGD_MAX_REQUEST_HEADER": "4096",
            "FLAGD_CONTEXT_VALUE": "region=eu,tier=a=b",
            "FLAGD_CONTEXT_FROM_HEADER": "X-Region=region",
        }
    )
    assert settings == Settings(
        "127.0.0.1", 0, 1, 2, 90.0, 0, 4096, {"region": "eu", "tier": "a=b"}, {"x-region": "region"}
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("0s", 0), ("600s", 600), ("1.5h", 5400), ("250ms", 0.25)]
)
def test_durations_are_read_as_go_writes_them(text: str, seconds: float) -> None:
    assert from_env({"FLAGD_STREAM_DEADLINE": text}).stream_deadline == seconds


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("FLAGD_PORT", "65536"),
        ("FLAGD_PORT", "-1"),
        ("FLAGD_PORT", ""),
        ("FLAGD_PORT", "²"),
        ("FLAGD_MAX_REQUEST_HEADER", "0"),
        ("FLAGD_STREAM_DEADLINE", "10"),
        ("FLAGD_STREAM_DEADLINE", "s10"),
        ("FLAGD_CONTEXT_VALUE", "region"),
        ("FLAGD_CONTEXT_FROM_HEADER", "=region"),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidSettingError, match=name):
        from_env({name: text})
