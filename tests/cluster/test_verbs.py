"""What the verbs of the command line print about a real cluster, kept in files (`golden.py`)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import jsonschema_rs
import pytest
import yaml

from controller.cli.json_schemas import json_schemas
from tests.cluster.fleets import flagstaff, wait_served
from tests.cluster.golden import check, mask
from tests.worlds.flags import flags
from tests.worlds.objects import flag_set, manifest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.objects import Namespace
    from tests.cluster.pods import PodProcess
    from tests.cluster.spines import Spine

BAD = "main@sha1:" + "0" * 40


def print_verb(spine: Spine, *words: str, code: int = 0, masks: bool = True) -> str:
    """What a verb prints in the spine's namespace."""
    ended, text = flagstaff(spine.plane, *words, "-n", spine.name)
    assert ended == code, text
    if not masks:
        return text
    text = text.replace(spine.url.partition("/repository")[0], "https://git.example.com")
    text = re.sub(r"\b[0-9a-f]{12}\b", "<commit>", text)
    text = re.sub(r"(?m)^ *\d+\.\d\ds", "<seconds>", text)
    return sorted_events(mask(text, spine.name))


def sorted_events(text: str) -> str:
    """`text` with each Event once and in the order of the alphabet: many have one time."""
    before, heading, events = text.partition("\nEvents:\n")
    return f"{before}{heading}" + "".join(f"{line}\n" for line in sorted(set(events.splitlines())))


@pytest.fixture
def shop(spine: Spine, fleet: list[PodProcess]) -> Spine:
    """A flag set that three evaluators serve, one of a bad path, and one that is suspended."""
    assert len(fleet) == 3
    spine.apply(flag_set(name="misplaced", paths=["flgas"]), flag_set(name="paused", suspend=True))
    spine.wait_reason("flagset", "BuildFailed", "misplaced")
    spine.push("Christmas banner", flags__json=flags(banner="off", snow="on"))
    spine.wait("ffc", lambda found: found["status"].get("flags") == 2)
    wait_served(spine, "3/3")
    wait_served(spine, "3/3", "flagset")
    return spine


def test_objects_are_listed_in_each_form(shop: Spine) -> None:
    words = (
        ("get", "sources"),
        ("get", "sets"),
        ("get", "sets", "-o", "wide"),
        ("get", "fset", "flags", "-o", "yaml"),
        ("get", "flags"),
        ("get", "flags", "snow", "-o", "json"),
        ("get", "all"),
        ("get", "all", "-o", "name"),
        ("get", "providers"),
        ("history", "flags"),
    )
    check("verbs-get", lambda: "\n".join(f"$ flagstaff {' '.join(w)}\n{print_verb(shop, *w)}" for w in words))


@pytest.mark.long
def test_object_is_suspended_and_resumed(shop: Spine) -> None:
    kept = "main@sha1:<commit> stays"
    assert print_verb(shop, "suspend", "set", "flags") == f"FlagSet/flags: suspended: {kept}\n"
    assert shop.get("flagset")["spec"]["suspend"] is True
    assert print_verb(shop, "suspend", "set", "flags") == f"FlagSet/flags: is already suspended: {kept}\n"
    text = print_verb(shop, "reconcile", "set", "flags", code=1)
    assert text == "flagstaff reconcile: FlagSet flags is suspended; flagstaff resume lets it work again\n"
    resumed = print_verb(shop, "resume", "set", "--all")
    assert "FlagSet/flags: resumed: Applied revision: main@sha1:<commit>\n" in resumed
    assert "FlagSet/misplaced: is not suspended\n" in resumed
    assert shop.get("flagset")["spec"]["suspend"] is False


def test_reconcile_shows_each_stage_until_it_is_served(shop: Spine) -> None:
    shop.repository.commit("no more snow", flags__json=flags(banner="on"))
    text = print_verb(shop, "reconcile", "set", "flags", "--with-source", "--timeout", "60s")
    stages = [line.split("  ")[1:3] for line in text.splitlines()]
    assert stages == [
        ["FlagSource/flags", "requested"],
        ["FlagSource/flags", "fetched"],
        ["FlagSet/flags", "requested"],
        ["FlagSet/flags", "applied"],
        ["FeatureFlagConfiguration/flags", "delivered"],
        ["FeatureFlagConfiguration/flags", "served"],
    ]
    assert "3 of 3 evaluators serve" in text


@pytest.mark.long
def test_reconcile_of_a_bad_set_ends_with_its_problem(shop: Spine) -> None:
    text = print_verb(shop, "reconcile", "set", "misplaced", code=1)
    assert "flgas: no such file or folder" in text


@pytest.mark.long
def test_misspelt_name_is_answered_with_the_one_that_is_there(shop: Spine) -> None:
    assert "there is no FlagSet flgas in namespace shop; did you mean 'flags'?" in print_verb(
        shop, "get", "sets", "flgas", code=1
    )
    assert "there is no kind 'sorces'; did you mean 'sources'?" in print_verb(shop, "get", "sorces", code=2)
    code, text = flagstaff(shop.plane, "get", "sets", "-n", f"{shop.name}x")
    assert code == 1
    assert f"there is no namespace '{shop.name}x'; did you mean '{shop.name}'?" in text


@pytest.mark.long
def test_objects_are_described_drawn_and_counted(shop: Spine) -> None:
    words = (
        ("describe", "set", "flags"),
        ("describe", "source", "flags"),
        ("describe", "set", "misplaced"),
        ("tree",),
        ("tree", "misplaced", "-o", "json"),
        ("stats",),
        ("stats", "-o", "json"),
        ("export", "all"),
    )
    check(
        "verbs-describe",
        lambda: "\n".join(f"$ flagstaff {' '.join(w)}\n{print_verb(shop, *w)}" for w in words),
    )
    assert "Propagated  True  <time>  Served  3 of 3 evaluators serve" in print_verb(
        shop, "describe", "ffc", "flags"
    )
    warnings = print_verb(shop, "events", "--types", "Warning", "--for", "FlagSet/misplaced")
    assert {line.split("  ")[2] for line in warnings.splitlines()} == {"FlagSet/shop/misplaced"}


def test_source_and_set_are_created_or_printed(space: Namespace) -> None:
    def create(*words: str, code: int = 0) -> str:
        ended, text = flagstaff(space.plane, "create", *words, "-n", space.name)
        assert ended == code, text
        return text

    git = ("source", "git", "checkout", "--url", "https://git.example.com/shop/flags.git", "--branch", "main")
    manifest = yaml.safe_load(create(*git, "--export"))
    assert manifest["spec"]["git"]["ref"] == {"branch": "main"}
    assert space.get("flagsource", "checkout") == {}
    waited = create(*git, "--timeout", "5s", code=1).splitlines()[-1]
    assert waited.startswith("FlagSource/checkout created: not in effect within 5 s: ")
    unknown = "FlagSource/checkout configured: its controller has not processed it yet\n"
    assert create(*git, "--interval", "5m", "--no-wait") == unknown
    assert space.get("flagsource", "checkout")["spec"]["interval"] == "5m"
    oci = ("source", "oci", "registry", "--url", "oci://registry.example.com/flags", "--semver", ">=1.0")
    assert create(*oci, "--no-wait").startswith("FlagSource/registry created: ")
    bucket = ("source", "bucket", "store", "--bucket-name", "flags", "--provider", "aws")
    assert create(*bucket, "--no-wait").startswith("FlagSource/store created: ")
    of_set = ("set", "flags", "--path", "base", "--timeout", "2s", "--source")
    missing = "there is no FlagSource chekout in namespace"
    assert missing in create(*of_set, "chekout", code=1)
    waited = create(*of_set, "checkout", code=1).splitlines()[-1]
    assert waited.startswith("FlagSet/flags created: not in effect within 2 s: ")
    assert space.get("flagset")["spec"]["paths"] == ["base"]
    assert "spec.git.url: write ssh://" in create(
        "source", "git", "a", "--url", "git@example.com:flags.git", code=2
    )


@pytest.mark.long
def test_files_on_disk_are_compared_with_what_a_cluster_serves(shop: Spine) -> None:
    source = ("--source", str(shop.repository.path))
    text = print_verb(shop, "diff", "--against-cluster", "flags", *source)
    assert text == "FlagSet/flags → working tree: no flag differs\n"
    shop.repository.write("flags.json", flags(banner="on", snow="on"))
    text = print_verb(shop, "diff", "--against-cluster", "flags", *source, code=1)
    assert text.splitlines() == [
        "FlagSet/flags → working tree: 1 flag differs: 1 changed",
        "~ banner: default off (false) → on (true)",
    ]


def test_flag_is_traced_to_the_commit_that_changed_it(shop: Spine, tmp_path: Path) -> None:
    newest = shop.repository.git("rev-parse", "HEAD")
    clone = str(shop.repository.path)
    text = print_verb(shop, "trace", "snow", "--repository", clone)
    check("verbs-trace", lambda: text)
    (trace,) = json.loads(print_verb(shop, "trace", "snow", "-o", "json", "--repository", clone, masks=False))
    assert (trace["commit"], trace["places"]) == (newest, ["flags.json:1"])
    # Without a clone, the source's own address is read.
    (trace,) = json.loads(
        print_verb(shop, "trace", "snow", "-o", "json", "--repository", str(tmp_path), masks=False)
    )
    assert trace["places"] == ["flags.json:1"]
    assert "there is no flag 'snwo' in namespace shop; did you mean 'snow'?" in print_verb(
        shop, "trace", "snwo", code=1
    )


@pytest.mark.long
def test_cluster_without_processes_fails_the_check(shop: Spine) -> None:
    code, text = flagstaff(shop.plane, "check", "-o", "json")
    results = {result["check"]: result for result in json.loads(text)}
    assert code == 1
    assert {name for name, result in results.items() if result["result"] == "failed"} == {"processes"}
    assert results["Kubernetes"]["message"].startswith("v1.")
    assert results["FlagSet"]["message"] == "v1beta1, as this program knows it"
    assert results["your rights"]["result"] == "ok"
    code, text = flagstaff(shop.plane, "check", "--pre")
    assert (code, text.count("\n")) == (0, 2)
    code, text = flagstaff(shop.plane, "logs")
    assert (code, "the cluster has no nodes, so it runs no pods" in text) == (1, True)


@pytest.mark.long
@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("get", ("get", "all")),
        ("get-flags", ("get", "flags")),
        ("history", ("history", "flags")),
        ("tree", ("tree",)),
        ("trace", ("trace", "snow")),
        ("stats", ("stats",)),
    ],
)
def test_json_output_has_the_schema_that_is_published(
    schema: str, words: tuple[str, ...], shop: Spine
) -> None:
    records = json.loads(print_verb(shop, *words, "-o", "json", masks=False))
    assert records
    jsonschema_rs.validator_for(json_schemas()[f"output-{schema}"]).validate(records)


def test_a_plan_against_a_cluster_names_its_rollout_its_override_and_the_tests(spine: Spine) -> None:
    about = {"flagSetRef": {"name": "flags"}}
    spine.push(flags__json=flags(banner="on", snow="on"))
    spine.wait("ffc", lambda found: found["status"].get("flags") == 2)
    spine.apply(
        manifest("FlagRollout", "slow", {**about, "flags": ["banner"], "steps": [{"share": 10}]}),
        manifest(
            "FlagOverride",
            "incident",
            {
                **about,
                "flag": "snow",
                "variant": "on",
                "reason": "it snows",
                "expiresAt": "2999-01-01T00:00:00Z",
            },
        ),
    )
    spine.wait("flagoverride", lambda found: found.get("status", {}).get("state") == "Active", "incident")
    spine.wait("flagrollout", lambda found: found.get("status", {}).get("phase") == "Idle", "slow")
    folder = spine.repository.path
    (folder / "flags.json").write_text(flags(banner="off", snow="off"))
    (folder / "flags.flagtest.yaml").write_text("tests: [{name: on, flag: banner, expect: {value: true}}]")
    text = print_verb(
        spine, "plan", "--against-cluster", "flags", "--source", str(folder), code=1, masks=False
    )
    lines = text.splitlines()
    assert lines[0].startswith("FlagSet/flags → working tree: 2 flags differ; 2 of them give up to 100 % ")
    assert lines[0].endswith("; 1 test fails")
    banner, snow = (lines.index(f"~ {key}: default on (true) → off (false)") for key in ("banner", "snow"))
    assert "    FlagRollout slow serves this in steps" in lines[banner:snow]
    assert "    covered by 1 test" in lines[banner:snow]
    assert "    FlagOverride incident decides now what users get, until it ends" in lines[snow:]
    assert "    no test covers it" in lines[snow:]
    assert any(line.startswith("FlagRollout slow: ") for line in lines)
