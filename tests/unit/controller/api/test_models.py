"""Specs as they are read: leniently where they may grow, with every wrong field named where not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from controller.api.artifact_status import ArtifactStatus
from controller.api.featureflagconfiguration import ConfigurationSpec
from controller.api.fields import InvalidSpecError, Model, read
from controller.api.flagreceiver import FlagReceiverSpec
from controller.api.flagset import FlagSetSpec
from controller.api.flagsource import FlagSourceSpec

GIT = {"url": "https://example.com/flags"}
REF = {"kind": "FlagSource", "name": "flags"}
HOOK: dict[str, Any] = {"type": "github", "secretRef": {"name": "s"}, "resources": [{"name": "*"}]}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("1m", 60), ("1h30m", 5400), ("500ms", 0.5), ("1.5m", 90), ("1h1m1s1ms", 3661.001)],
)  # fmt: skip
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    assert read(FlagSourceSpec, {"interval": text, "git": GIT}).interval == seconds


@pytest.mark.parametrize(
    "text", ["", "30", "s", "1d", "-1s", "1 s", "0s", "0.0h", "1m 1s", "9999h", "1s!", "\u0661s"]
)
def test_what_is_no_duration_is_refused_by_its_path(text: str) -> None:
    with pytest.raises(InvalidSpecError, match=r"^spec\.interval: must be"):
        read(FlagSourceSpec, {"interval": text, "git": GIT})


def test_nobody_is_looked_at_without_pause_or_waited_for_without_end() -> None:
    source = read(FlagSourceSpec, {"interval": "1ms", "timeout": "90000m", "git": GIT})
    assert (source.interval, source.timeout) == (0.5, 600)
    assert read(FlagSetSpec, {"sourceRef": REF, "interval": "1ms"}).interval == 0.5


def test_missing_fields_have_flux_s_defaults() -> None:
    source = read(FlagSourceSpec, {"interval": "1m", "git": GIT})
    assert source.git is not None
    assert (source.timeout, source.suspend, source.git.ref.branch) == (60.0, False, None)
    flag_set = read(FlagSetSpec, {"sourceRef": REF})
    assert (flag_set.interval, flag_set.prune, flag_set.paths) == (600.0, True, (".",))
    assert (flag_set.validation, flag_set.failure_policy, flag_set.bucketing) == ("Strict", "PerFlag", "v2")
    assert flag_set.target.kinds == ("FeatureFlagConfiguration",)


def test_fields_of_a_newer_version_are_no_error() -> None:
    assert read(FlagSetSpec, {"sourceRef": {**REF, "new": 1}, "new": {"a": 1}}).source_ref.name == "flags"


@pytest.mark.parametrize(
    ("model", "spec", "path"),
    [
        (FlagSourceSpec, {}, "spec.interval"),
        (FlagSourceSpec, {"interval": "1m"}, "spec"),
        (FlagSourceSpec, {"interval": "1m", "git": {"url": "git@host:x"}}, "spec.git.url"),
        (FlagSourceSpec, {"interval": "1m", "git": {**GIT, "ref": {"name": "main"}}}, "spec.git.ref.name"),
        (FlagSourceSpec, {"interval": "1m", "git": {**GIT, "ref": {"commit": "HEAD"}}},
         "spec.git.ref.commit"),
        (FlagSetSpec, {"sourceRef": {"kind": "HelmChart", "name": "x"}}, "spec.sourceRef.kind"),
        (FlagSetSpec, {"sourceRef": REF, "paths": []}, "spec.paths"),
        (FlagSetSpec, {"sourceRef": REF, "failurePolicy": "Any"}, "spec.failurePolicy"),
        (FlagSetSpec, {"sourceRef": REF, "dependsOn": [{"name": "a"}, {}]}, "spec.dependsOn.1.name"),
        (FlagReceiverSpec, {**HOOK, "type": "svn"}, "spec.type"),
        (FlagReceiverSpec, {**HOOK, "resources": []}, "spec.resources"),
        (FlagReceiverSpec, {**HOOK, "resources": [{"kind": "FlagSet", "name": "x"}]},
         "spec.resources.0.kind"),
        (ConfigurationSpec, {"shards": []}, "spec.shards"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_by_its_path(model: type[Model], spec: Any, path: str) -> None:
    with pytest.raises(InvalidSpecError) as raised:
        read(model, spec)
    assert str(raised.value).startswith(f"{path}: ")


def test_no_value_is_repeated_and_no_more_than_five_fields_are_named() -> None:
    with pytest.raises(InvalidSpecError) as raised:
        read(FlagSourceSpec, {"interval": "s3cret", "timeout": "s3cret", "git": {"url": "s3cret"}})
    assert "s3cret" not in str(raised.value)
    with pytest.raises(InvalidSpecError) as raised:
        read(FlagSetSpec, {"sourceRef": REF, "dependsOn": [{}] * 30})
    assert str(raised.value).count("spec.") == 5


def test_a_model_is_frozen() -> None:
    spec = read(FlagReceiverSpec, HOOK)
    with pytest.raises(ValidationError):
        spec.suspend = True


@pytest.mark.parametrize("digest", ["sha256:00ff", "sha512+b64:AA_-="])
def test_flux_s_artifact_is_read_though_it_says_more(digest: str) -> None:
    body = {
        "path": "p", "url": "http://a/b", "revision": "main@sha1:1", "digest": digest, "size": 3, "more": 1,
    }  # fmt: skip
    assert ArtifactStatus.model_validate(body).digest == digest


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["interval", "git", "url", "ref", "sourceRef", "kind", "name", "paths", "target",
                         "kinds", "type", "resources", "secretRef", "shards", "flagSpec"]),
        inner, max_size=4,
    ),
    max_leaves=10,
)  # fmt: skip


@given(
    st.sampled_from([FlagSourceSpec, FlagSetSpec, FlagReceiverSpec, ConfigurationSpec]),
    st.dictionaries(
        st.sampled_from(["interval", "git", "oci", "bucket", "sourceRef", "paths", "target", "type"]), json
    ),
)
def test_whatever_stands_there_is_read_or_refused(model: type[Model], spec: dict[str, Any]) -> None:
    try:
        read(model, spec)
    except InvalidSpecError as error:
        assert str(error).startswith(("spec.", "spec:"))  # noqa: PT017 - either way is right
