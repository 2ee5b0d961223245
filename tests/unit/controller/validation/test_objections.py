"""What admission says of an object, and that `flagstaff lint -f` says the same."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from controller.cli import main
from controller.delivery.problem_text import summary
from controller.runtime.plain_text import one_line
from controller.validation.object_problems import KINDS, objection
from evaluator.flags.model import CONFIDENTIAL_KEY
from tests.bad_manifests import BEYOND_SCHEMA, BY_SCHEMA, DOUBTFUL
from tests.contract.flagd_corpus import CASES, Case
from tests.unit.evaluator.flags.wrong_documents import WRONG_FLAGS
from tests.work import work

if TYPE_CHECKING:
    from pathlib import Path

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on"}


def object_to(spec: dict[str, Any], kind: str = "FeatureFlag") -> tuple[str, tuple[str, ...]]:
    metadata = {"name": "x", "namespace": "shop"}
    return objection(
        {"apiVersion": "core.openfeature.dev/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}
    )


def flags(**fields: Any) -> dict[str, Any]:
    return {"flagSpec": {"flags": {"banner": {**FLAG, **fields}}}}


@pytest.mark.parametrize("kind", ["FeatureFlag", "FeatureFlagConfiguration"])
def test_good_flags_pass_without_a_word(kind: str) -> None:
    assert object_to(flags(), kind) == ("", ())
    assert object_to({"flagSpec": {"flags": {}}}, kind) == ("", ())


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"defaultVariant": "onn"}, 'banner.defaultVariant: `variants` has no "onn"'),
        ({"targeting": {"fractional": ["invalid", ["on", 1]]}}, "banner.targeting.fractional[0]: fractional"),
        ({"targeting": {"bogus": []}}, 'banner.targeting.bogus: unknown operator "bogus"'),
        ({"state": "on"}, "banner.state: "),
    ],
)
def test_what_flagd_or_its_schema_rejects_is_refused_with_its_place_and_what_to_do(
    fields: dict[str, Any], why: str
) -> None:
    refusal, warnings = object_to(flags(**fields))
    assert refusal.startswith(f"FeatureFlag x: spec.flagSpec.flags.{why}")
    assert refusal.endswith("; correct it and apply again")
    assert warnings == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"targeting": {"if": [{"$ref": "nobody"}, "on", None]}},
        {"targeting": {"if": [{"var": "x"}, "onn"]}},
        {"description": "x"},
    ],
)
def test_what_the_schema_cannot_see_passes_with_a_warning(fields: dict[str, Any]) -> None:
    refusal, (warning, *_) = object_to(flags(**fields))
    assert refusal == ""
    assert warning.startswith("FeatureFlag x: spec.flagSpec.flags.banner.")


def test_notes_are_shown_to_whoever_applies_after_warnings() -> None:
    rule = {"if": [{"in": [["a"], {"var": "x"}]}, "onn", {"fractional": [{"+": [{"var": "x"}]}, ["on"]]}]}
    refusal, texts = object_to(flags(targeting=rule, owner="shop"))
    assert refusal == ""
    assert "not a variant" in texts[0]
    assert any("a list is never found" in text for text in texts[1:])
    assert any("never text" in text for text in texts[1:])


def test_of_many_problems_the_first_are_named_and_all_are_counted() -> None:
    bad = {f"flag-{number}": {**FLAG, "defaultVariant": "onn"} for number in range(9)}
    refusal, _ = object_to({"flagSpec": {"flags": bad}})
    assert refusal.count("`variants` has no") == 5
    assert "(and 4 more); correct it" in refusal


def test_without_a_document_it_is_refused_and_with_parts_to_come_it_is_not() -> None:
    assert "there are no flags" in object_to({})[0]
    shards = {"shards": [{"name": "part", "digest": "sha256:1"}]}
    assert object_to(shards, "FeatureFlagConfiguration") == ("", ())


def test_a_value_of_a_secret_is_not_repeated() -> None:
    bad = {"targeting": {"fractional": ["hush", ["on", 1]]}}
    assert "hush" in object_to(flags(**bad))[0]
    refusal, _ = object_to(flags(**bad, metadata={CONFIDENTIAL_KEY: True}))
    assert "the words are withheld" in refusal
    assert "hush" not in refusal


def test_a_text_that_breaks_lines_does_not_break_the_message() -> None:
    assert (
        "\n" not in object_to({"flagSpec": {"flags": {"a\nb": {**FLAG, "defaultVariant": "x" * 9_999}}}})[0]
    )


def test_what_is_nested_without_end_is_refused() -> None:
    rule: Any = True
    for _ in range(900):
        rule = {"!": [rule]}
    assert object_to(flags(targeting=rule))[0]


OF_A_FLAG = [
    each for each in CASES if not each.accepted and not each.name.startswith(("baseConfig", "metadata"))
]


@pytest.mark.parametrize("case", OF_A_FLAG, ids=lambda case: case.name)
def test_whatever_flags_the_operator_refuses_are_refused(case: Case) -> None:
    assert object_to({"flagSpec": case.document})[0]


PROVIDER = "FeatureFlagConfiguration x: spec.remoteFlagProvider"


@pytest.mark.parametrize(
    ("provider", "refusal"),
    [
        ({"type": "http", "url": "https://flags.example.com/a.json"}, ""),
        ({"type": "grpc", "url": "grpcs://[::1]:8015", "strategy": "override"}, ""),
        ({"type": "flagSource", "flagSource": "platform"}, ""),
        ({"type": "smoke"}, f"{PROVIDER}.type: must be one of http, grpc, flagSource"),
        ({"type": "http", "url": "https://a.example", "strategy": "mix"}, f"{PROVIDER}.strategy: must"),
        ({"type": "http", "url": "https://a.example", "interval": "soon"}, f"{PROVIDER}.interval: must"),
        ({"type": "http", "url": "https://ada:secret@a.example"}, f"{PROVIDER}: url must be https://HOST/PATH"),
        ({"type": "http", "url": "ftp://a.example"}, f"{PROVIDER}: url must be https://HOST/PATH"),
        ({"type": "grpc", "url": "https://a.example"}, f"{PROVIDER}: url must be grpcs://HOST:PORT"),
        ({"type": "http"}, f"{PROVIDER}: type flagSource needs flagSource"),
        ({"type": "flagSource", "url": "https://a.example"}, f"{PROVIDER}: type flagSource needs flagSource"),
        ("https://a.example", PROVIDER),
    ],
    ids=str,
)  # fmt: skip
def test_a_remote_provider_that_cannot_be_asked_is_refused_with_its_field(
    provider: Any, refusal: str
) -> None:
    refused, _ = object_to({**flags(), "remoteFlagProvider": provider}, "FeatureFlagConfiguration")
    assert refused.startswith(refusal)
    assert bool(refused) == bool(refusal)
    assert "secret" not in refused


def test_own_flags_are_judged_whatever_a_provider_has_sent() -> None:
    meta = {"name": "x", "namespace": "shop"}
    provider = {"type": "http", "url": "https://a.example"}
    status = {"providers": [{"name": "there", "shards": [{"name": "gone", "digest": "d"}]}]}
    kind, version = "FeatureFlagConfiguration", "core.openfeature.dev/v1beta1"
    body = {"apiVersion": version, "kind": kind, "metadata": meta, "status": status}
    bad = flags(defaultVariant="onn") | {"remoteFlagProvider": provider}
    refused, _ = objection({**body, "spec": bad})
    assert refused.startswith("FeatureFlagConfiguration x: spec.flagSpec.flags.banner.defaultVariant")


def test_an_object_that_is_wrong_in_each_of_its_fields_is_refused_in_linear_time() -> None:
    began = time.thread_time()
    refused, _ = object_to({"flagSpec": {"flags": {f"flag-{number}": 1 for number in range(15_000)}}})
    assert "(and 14995 more)" in refused
    assert time.thread_time() - began < 5.0


@pytest.mark.parametrize("wrong", sorted(WRONG_FLAGS))
def test_a_review_of_more_wrong_flags_takes_no_more_than_their_share(wrong: str) -> None:
    def review(count: int) -> int:
        content = {f"flag-{at}": WRONG_FLAGS[wrong](at) for at in range(count)}
        return work(lambda: object_to({"flagSpec": {"flags": content}}))

    assert review(480) <= 8 * review(60)


def test_a_review_of_more_wrong_fields_takes_no_more_than_their_share() -> None:
    def review(count: int) -> int:
        wrong = {f"flagSpek{at}": 1 for at in range(count)}
        return work(lambda: object_to({"flagSpec": {"flags": {}}, **wrong}))

    assert review(800) <= 8 * review(100)


BAD = BY_SCHEMA | BEYOND_SCHEMA
STORED = {"uid": "u", "resourceVersion": "7", "generation": 1, "managedFields": [{"manager": "kubectl"}]}


def lint(manifest: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[Any]:
    (tmp_path / "x.json").write_text(json.dumps(manifest))
    main(["lint", "-f", str(tmp_path / "x.json"), "-o", "json"])
    problems: list[Any] = json.loads(capsys.readouterr().out)
    return problems


def sent_object(manifest: dict[str, Any]) -> dict[str, Any]:
    """The object as the API server sends it, which has filled in what it keeps itself."""
    return {**manifest, "metadata": {**manifest["metadata"], **STORED}, "status": {"observedGeneration": "x"}}


@pytest.mark.parametrize("manifest", BAD.values(), ids=BAD)
def test_a_refusal_has_the_words_of_lint(
    manifest: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = lint(manifest, tmp_path, capsys)
    words = [one_line(each["message"], 500) for each in found if each["severity"] == "error"]
    refusal, warnings = objection(sent_object(manifest))
    assert refusal == summary(words, len(words))
    assert words
    assert warnings == ()


@pytest.mark.parametrize("manifest", DOUBTFUL.values(), ids=DOUBTFUL)
def test_a_warning_has_the_words_of_lint(
    manifest: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [each["message"] for each in lint(manifest, tmp_path, capsys)]
    assert objection(sent_object(manifest)) == ("", tuple(words))
    assert words


def test_every_kind_is_refused_for_something() -> None:
    assert {manifest["kind"] for manifest in BAD.values()} == set(KINDS)


@pytest.mark.parametrize(
    ("source", "reference", "unused"),
    [
        ("git", {"branch": "main"}, {}),
        ("git", {"commit": "a" * 40, "branch": "main"}, {}),
        ("git", {"branch": "main", "tag": "v1"}, {"branch": "tag"}),
        ("git", {"branch": "main", "semver": ">=1"}, {"branch": "semver"}),
        ("git", {"name": "refs/heads/x", "tag": "v1", "branch": "main"}, {"tag": "name", "branch": "name"}),
        ("git", {"commit": "a" * 40, "tag": "v1"}, {"tag": "commit"}),
        ("oci", {"tag": "v1", "semver": ">=1"}, {"tag": "semver"}),
        ("oci", {"tag": "v1", "digest": f"sha256:{'a' * 64}"}, {"tag": "digest"}),
    ],
)
def test_a_reference_beside_one_that_wins_is_warned_of(
    source: str, reference: dict[str, str], unused: dict[str, str]
) -> None:
    url = {"git": "https://git.example.com/flags", "oci": "oci://registry.example.com/flags"}[source]
    spec = {"interval": "1m", source: {"url": url, "ref": reference}}
    body = {"apiVersion": "flagstaff.dev/v1beta1", "kind": "FlagSource", "metadata": {"name": "x"}}
    assert objection({**body, "spec": spec}) == (
        "",
        tuple(
            f"FlagSource x: spec.{source}.ref.{name}: has no effect: {winner} wins, as with Flux; "
            "leave one of the two out"
            for name, winner in unused.items()
        ),
    )
