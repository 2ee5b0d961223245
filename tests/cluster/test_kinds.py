"""What the real API server takes of our kinds, through the real kubectl, and in which words it refuses the
rest.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from controller.api.flagsource import PROVIDERS
from tests.cluster.api import Api, Refused, path_of
from tests.cluster.plugin import namespace_on
from tests.proposal import manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.plane import Plane

OURS: Final = "flagstaff.dev/v1beta1"
VERSIONS: Final = ("v1alpha1", "v1alpha2", "v1beta1")
FLAGS: Final = {"flags": {"a": {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}}}
GIT: Final = {"url": "https://git.example.com/flags.git"}
SIGNED: dict[str, Any] = {"secretRef": {"name": "signers"}}
KEYLESS: dict[str, Any] = {"matchOIDCIdentity": [{"issuer": "x", "subject": "x"}]}
BUCKET: Final = {"bucketName": "flags", "endpoint": "minio.example.com"}
SOURCE: Final = {"interval": "1m", "git": GIT}
GRANT: Final[dict[str, Any]] = {
    "from": [{"group": "flagstaff.dev", "kind": "FlagSet", "namespace": "shop"}],
    "to": [{"group": "flagstaff.dev", "kind": "FlagSource"}],
}
SET: Final = {"sourceRef": {"kind": "FlagSource", "name": "flags"}}
OVERRIDE: Final[dict[str, Any]] = {
    "flagSetRef": {"name": "flags"}, "flag": "a", "variant": "on", "reason": "INC-1",
    "expiresAt": "2026-12-01T18:00:00Z",
}  # fmt: skip
ROLLOUT: Final[dict[str, Any]] = {
    "flagSetRef": {"name": "flags"}, "flags": ["new-*"], "steps": [{"share": 1}, {"share": 50}],
    "analysis": {"metrics": [
        {"name": "errors", "templateRef": {"name": "x"}, "thresholdRange": {"max": 0.01}},
    ]},
}  # fmt: skip
TEMPLATE: Final[dict[str, Any]] = {
    "provider": {"type": "prometheus", "address": "http://prometheus:9090"},
    "query": "up",
}
POLICY: Final[dict[str, Any]] = {
    "action": "Deny",
    "matchConditions": [{"name": "changed", "expression": 'plan.change == "Changed"'}],
    "validations": [{"expression": "plan.most <= 10", "message": "too many users at once"}],
}
HOOK: Final = {"type": "github", "secretRef": {"name": "hook"}, "resources": [{"name": "*"}]}
PROVIDER: Final = {"type": "generic", "address": "https://alerts.example.com/"}
ALERT: Final = {"providerRef": {"name": "x"}, "eventSources": [{"kind": "FlagSet", "name": "*"}]}
SHARD: Final = {"digest": "sha256:1", "flagSpec": FLAGS}


def body(kind: str, spec: Any, version: str = OURS, name: str = "x") -> str:
    return json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})


def configuration_of(spec: Any, version: str = "v1beta1", kind: str = "FeatureFlagConfiguration") -> str:
    return body(kind, spec, f"core.openfeature.dev/{version}")


class Applying:
    """kubectl in one namespace."""

    def __init__(self, plane: Plane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace

    def apply(self, text: str, *more: str) -> str:
        return self.plane.kubectl("apply", "-n", self.namespace, "-f", "-", *more, given=text)

    def refusal_of(self, text: str) -> str:
        """What the API server answers to kubectl, which asks for strictness."""
        found = json.loads(text)
        path = path_of(found["kind"], self.namespace).replace(
            "core.openfeature.dev/v1beta1", found["apiVersion"]
        )
        with pytest.raises(Refused) as caught:
            Api(self.plane).ask("POST", f"{path}?fieldValidation=Strict", found)
        said: str = json.loads(str(caught.value).partition(" ")[2])["message"]
        return said

    def get(self, kind: str, name: str = "x", version: str = "v1beta1") -> Any:
        path = path_of(kind, self.namespace, name).replace(f"dev/{VERSIONS[-1]}", f"dev/{version}")
        return Api(self.plane).ask("GET", path)


@pytest.fixture
def applying(cluster: Plane, namespace: str) -> Applying:
    return Applying(cluster, namespace)


@pytest.fixture(scope="module")
def refusing(cluster: Plane) -> Iterator[Applying]:
    """For objects that are refused, and so leave nothing behind."""
    with namespace_on(cluster) as name:
        yield Applying(cluster, name)


def test_missing_fields_get_their_defaults(applying: Applying) -> None:
    applying.apply(body("FlagSource", SOURCE))
    applying.apply(body("FlagSet", SET))
    applying.apply(body("FlagReceiver", HOOK))
    made, flag_set, hook = (applying.get(each) for each in ("flagsource", "flagset", "flagreceiver"))
    filled = {"export": False, "suspend": False, "timeout": "60s"}
    assert made["spec"] == {**SOURCE, **filled, "git": {**GIT, "recurseSubmodules": False}}
    assert flag_set["spec"] == {
        **SET, "bucketing": "v2", "driftPolicy": "Correct", "failurePolicy": "PerFlag", "interval": "10m",
        "paths": ["."], "prune": True, "pruneGuard": True, "suspend": False,
        "target": {"kinds": ["FeatureFlagConfiguration"]}, "validation": "Strict",
    }  # fmt: skip
    assert hook["spec"] == {**HOOK, "resources": [{"kind": "FlagSource", "name": "*"}], "suspend": False}


OF_PROVIDERS: Final = {"git": GIT, "oci": {"url": "oci://h/x"}, "bucket": BUCKET}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_source_of_every_provider_is_accepted(applying: Applying, provider: str) -> None:
    applying.apply(body("FlagSource", {"interval": "1m", provider: OF_PROVIDERS[provider]}))


def test_a_new_object_shows_that_it_was_not_reconciled_yet(applying: Applying) -> None:
    applying.apply(body("FlagSource", {**SOURCE, "suspend": True}))
    assert applying.get("flagsource")["status"] == {"observedGeneration": -1}


def source(**spec: Any) -> tuple[str, dict[str, Any]]:
    return "FlagSource", {**SOURCE, **spec}


def git(**spec: Any) -> tuple[str, dict[str, Any]]:
    return source(git={**GIT, **spec})


def image(**verify: Any) -> tuple[str, dict[str, Any]]:
    return "FlagSource", {"interval": "1m", "oci": {"url": "oci://h/x"}, "verify": verify}


def bucket(**spec: Any) -> tuple[str, dict[str, Any]]:
    return "FlagSource", {"interval": "1m", "bucket": {"bucketName": "x", **spec}}


def of_aws(endpoint: str, **spec: Any) -> tuple[str, dict[str, Any]]:
    return bucket(provider="aws", sts={"provider": "aws", "endpoint": endpoint}, **spec)


ELSEWHERE: Final = {"repository": {"name": "x"}, "toPath": "a/../../b"}
RULED: Final = {**SIGNED, "rules": [{"paths": ["x"], "anyOf": [{"signers": ["a"]}]}]}
NOBODY: Final = r"set exactly one of secretRef, matchOIDCIdentity"
KIND: Final = r"\.kind: Unsupported value"
UNNAMED: Final = r"providerRef: Required value|providerRef.*must be of type object|must name a FlagProvider"
REFUSED: Final[dict[str, tuple[str, Any, str]]] = {
    "no spec": ("FlagSource", None, r"spec: Required value|spec in body must be of type object"),
    "no interval": ("FlagSource", {"git": GIT}, r"spec\.interval: Required value"),
    "a day": (*source(interval="1d"), r"spec\.interval.*should match"),
    "hours to wait": (*source(timeout="1h"), r"spec\.timeout.*should match"),
    "no provider": ("FlagSource", {"interval": "1m"}, r"spec: .*set exactly one of"),
    "two providers": (*source(bucket=BUCKET), r"spec: .*set exactly one of"),
    "signatures of no folder": (
        "FlagSource", {"interval": "1m", "bucket": {**BUCKET, "prefix": "x"}, "verify": SIGNED},
        r"verify needs a bucket\.prefix that ends in /",
    ),
    "a mode for an image": (*image(**SIGNED, mode="Tag"), r"verify\.mode works only with git"),
    "rules for the newest": (*source(verify=RULED), r"rules need mode EveryCommit"),
    "nobody to believe": (*source(verify={}), NOBODY),
    "keys and identities": (*image(**SIGNED, **KEYLESS), NOBODY),
    "any identity": (*image(matchOIDCIdentity=[]), NOBODY),
    "an identity of no subject": (*image(matchOIDCIdentity=[{"issuer": "x"}]), r"subject: Required value"),
    "an empty issuer": (
        *image(matchOIDCIdentity=[{"issuer": "", "subject": "x"}]), r"issuer.*at least 1 chars",
    ),
    "an identity for Git": (*source(verify=KEYLESS), r"verify\.matchOIDCIdentity works only with oci"),
    "a root for keys": (
        *image(**SIGNED, trustedRootSecretRef={"name": "x"}), r"trustedRootSecretRef needs matchOIDCIdentity",
    ),
    "no store": (*bucket(), r"endpoint is required"),
    "a strange store": (*bucket(endpoint="h", provider="ftp"), r"supported values: \"generic\""),
    "a store in plain text": (*bucket(endpoint="http://h"), r"needs insecure"),
    "scp's spelling": (*git(url="git@host:x"), r"spec\.git\.url.*write ssh://"),
    "a token": (*git(url="https://TOKEN@host/x"), r"must not hold a password or token"),
    "a query": (*git(url="https://host/x?token=y"), r"must have no query"),
    "a password": (*git(url="https://me:secret@host/x"), r"must not hold a password"),
    "no full name": (*git(ref={"name": "main"}), r"spec\.git\.ref\.name.*should match"),
    "no commit": (*git(ref={"commit": "HEAD"}), r"spec\.git\.ref\.commit.*should match"),
    "an empty branch": (*git(ref={"branch": ""}), r"spec\.git\.ref\.branch.*at least 1 chars"),
    "a typo": (*source(intervall="1m"), r"unknown field \"spec\.intervall\""),
    "a folder elsewhere": (*source(include=[ELSEWHERE]), r"toPath.*must be a folder within the source"),
    "a pattern of folders": (*git(sparseCheckout=["flags/*"]), r"sparseCheckout.*not a pattern"),
    "an identity for a stranger": (*of_aws("https://sts.evil.com"), r"sts\.endpoint.*should match"),
    "an identity and keys": (
        *of_aws("https://sts.amazonaws.com", secretRef={"name": "x"}),
        r"sts works only with provider aws and without secretRef",
    ),
    "a strange registry": (
        "FlagSource", {"interval": "1m", "oci": {"url": "oci://h/x", "provider": "docker"}},
        r"supported values: \"generic\"",
    ),
    "an identity and a proxy": (
        *bucket(provider="gcp", proxySecretRef={"name": "x"}), r"use the controller's own identity, which",
    ),
    "rules for submodules": (
        *source(git={**GIT, "recurseSubmodules": True}, verify={**RULED, "mode": "EveryCommit"}),
        r"rules do not see the files of submodules",
    ),
    "no source": ("FlagSet", {}, r"spec\.sourceRef: Required value"),
    "a chart": (
        "FlagSet", {"sourceRef": {"kind": "HelmChart", "name": "x"}}, rf"sourceRef{KIND}.*GitRepository",
    ),
    "no path": ("FlagSet", {**SET, "paths": []}, r"spec\.paths.*at least 1 items"),
    "a policy": ("FlagSet", {**SET, "failurePolicy": "Any"}, r"spec\.failurePolicy: Unsupported value"),
    "no kind": ("FlagSet", {**SET, "target": {"kinds": []}}, r"spec\.target\.kinds.*at least 1 items"),
    "a kind twice": ("FlagSet", {**SET, "target": {"kinds": ["FeatureFlag"] * 2}}, r"Duplicate value"),
    "a mode of tests": (
        "FlagSet", {**SET, "tests": {"mode": "Maybe"}}, r"spec\.tests\.mode: Unsupported value",
    ),
    "more than all covered": (
        "FlagSet", {**SET, "tests": {"minCoverage": 101}}, r"minCoverage.*less than or equal to 100",
    ),
    "a sender": ("FlagReceiver", {**HOOK, "type": "svn"}, r"spec\.type: Unsupported value"),
    "no token": (
        "FlagReceiver", {"type": "github", "resources": [{"name": "*"}]}, r"spec\.secretRef: Required value",
    ),
    "nobody to wake": ("FlagReceiver", {**HOOK, "resources": []}, r"spec\.resources.*at least 1 items"),
    "a set to wake": (
        "FlagReceiver", {**HOOK, "resources": [{"kind": "FlagSet", "name": "x"}]}, rf"resources\[0\]{KIND}",
    ),
    "a chat of nobody": ("FlagProvider", {**PROVIDER, "type": "irc"}, r"spec\.type: Unsupported value"),
    "plans of no FlagSet": (
        "FlagProvider", {**PROVIDER, "plans": {"flagSets": []}}, r"spec\.plans\.flagSets.*at least 1 items",
    ),
    "plans of too many": (
        "FlagProvider", {**PROVIDER, "plans": {"flagSets": ["x"], "limit": 51}},
        r"spec\.plans\.limit.*less than or equal to 50",
    ),
    "an alert without a provider": ("FlagAlert", {**ALERT, "providerRef": None}, UNNAMED),
    "no event source": ("FlagAlert", {**ALERT, "eventSources": []}, r"spec\.eventSources.*at least 1 items"),
    "a Pod as event source": (
        "FlagAlert", {**ALERT, "eventSources": [{"kind": "Pod", "name": "x"}]}, rf"eventSources\[0\]{KIND}",
    ),
    "a grant to a Job": (
        "FlagGrant", {**GRANT, "from": [{**GRANT["from"][0], "kind": "Job"}]}, rf"from\[0\]{KIND}",
    ),
    "an override to nothing": (
        "FlagOverride", {**OVERRIDE, "variant": None}, "exactly one of variant and disabled: true",
    ),
    "an override to two things": (
        "FlagOverride", {**OVERRIDE, "disabled": True}, "exactly one of variant and disabled: true",
    ),
    "an audience of a disabled flag": (
        "FlagOverride", {**OVERRIDE, "variant": None, "disabled": True, "audience": {"var": "a"}},
        "audience needs a variant",
    ),
    "no reason": ("FlagOverride", {**OVERRIDE, "reason": None}, r"spec\.reason: Required value"),
    "a blank reason": ("FlagOverride", {**OVERRIDE, "reason": " "}, r"spec\.reason.*should match"),
    "no expiry": ("FlagOverride", {**OVERRIDE, "expiresAt": None}, r"spec\.expiresAt: Required value"),
    "an expiry that is no time": (
        "FlagOverride", {**OVERRIDE, "expiresAt": "2h"}, r"spec\.expiresAt.*date-time",
    ),
    "an audience with a share": (
        "FlagRollout", {**ROLLOUT, "steps": [{"share": 1, "audience": {"var": "a"}}]},
        "exactly one of audience and share",
    ),
    "shares that fall": (
        "FlagRollout", {**ROLLOUT, "steps": [{"share": 10}, {"audience": {"var": "a"}}, {"share": 1}]},
        "shares must increase",
    ),
    "dates that go back": (
        "FlagRollout", {**ROLLOUT, "steps": [{"share": 1, "at": "2026-12-01T08:00:00+01:00"},
                                             {"share": 2, "at": "2026-12-01T06:59:59Z"}]},
        "at must not be earlier than in a step before",
    ),
    "no step": ("FlagRollout", {**ROLLOUT, "steps": []}, r"spec\.steps.*at least 1 items"),
    "a threshold without bounds": (
        "FlagRollout",
        {**ROLLOUT, "analysis": {"metrics": [
            {"name": "a", "templateRef": {"name": "x"}, "thresholdRange": {}},
        ]}},
        "set min, max or both",
    ),
    "an unknown metric server": (
        "MetricTemplate", {**TEMPLATE, "provider": {**TEMPLATE["provider"], "type": "graphite"}},
        r"spec\.provider\.type: Unsupported value",
    ),
    "a metric server without an address": (
        "MetricTemplate", {**TEMPLATE, "provider": {"type": "prometheus"}},
        "types prometheus and http need address",
    ),
    "a certificate that nobody verifies": (
        "MetricTemplate", {**TEMPLATE, "provider": {**TEMPLATE["provider"], "insecureSkipVerify": True}},
        "certificates are always verified: name the server's authority in certSecretRef",
    ),
    "a number that is nowhere": (
        "MetricTemplate", {**TEMPLATE, "provider": {**TEMPLATE["provider"], "type": "http"}, "query": "/x"},
        "type http needs jsonPath",
    ),
    "a query that changes the host": (
        "MetricTemplate",
        {"provider": {"type": "http", "address": "https://h", "jsonPath": "$"}, "query": ".example.com/"},
        "they begin with / or ?",
    ),
    "an unknown action": (
        "FlagPolicy", {**POLICY, "action": "Refuse"}, r"spec\.action: Unsupported value",
    ),
    "a shard without flags": ("FlagShard", {"digest": "sha256:1"}, r"spec\.flagSpec: Required value"),
}  # fmt: skip


FLAGGER: Final = (Path(__file__).parents[1] / "flagger_templates.yaml").read_text()


def test_templates_of_flagger_are_accepted_with_another_group(applying: Applying) -> None:
    ours = FLAGGER.replace("flagger.app/v1beta1", "flagstaff.dev/v1beta1")
    applying.apply(ours.replace("namespace: shop", f"namespace: {applying.namespace}"))
    assert applying.get("metrictemplate", "datadog-errors")["spec"]["provider"]["type"] == "datadog"


@pytest.mark.parametrize(("kind", "spec", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_wrong_is_refused_by_its_path(refusing: Applying, kind: str, spec: Any, words: str) -> None:
    assert re.search(words, refusing.refusal_of(body(kind, spec)))


HOSTS: Final = {
    "aws": "1.dkr.ecr.eu-west-1.amazonaws.com", "azure": "shop.azurecr.io",
    "gcp": "europe-docker.pkg.dev", "generic": "ghcr.io", None: "ghcr.io",
}  # fmt: skip
"""A registry's host by `oci.provider`."""
NAMED: Final = {"name": "x"}
WAYS: Final[tuple[dict[str, Any], ...]] = (
    {}, {"insecure": False}, {"insecure": True}, {"proxySecretRef": NAMED}, {"certSecretRef": NAMED},
)  # fmt: skip


@pytest.mark.parametrize("login", [{}, {"secretRef": NAMED}], ids=["own identity", "secret"])
@pytest.mark.parametrize("provider", HOSTS)
def test_the_identity_of_the_controller_takes_no_way_of_a_registrys_source(
    applying: Applying, refusing: Applying, provider: str | None, login: dict[str, Any]
) -> None:
    """Nothing else of a provider is refused: neither generic ones nor a login of the source's own."""
    given = {"url": f"oci://{HOSTS[provider]}/x", **login, **({"provider": provider} if provider else {})}
    for way in WAYS:
        source = body("FlagSource", {"interval": "1m", "oci": {**given, **way}})
        if provider in {"aws", "azure", "gcp"} and not login and any(way.values()):
            assert "use the controller's own identity, which" in refusing.refusal_of(source)
        else:
            applying.apply(source)


def test_a_shard_never_changes(applying: Applying) -> None:
    applying.apply(body("FlagShard", SHARD))
    with pytest.raises(RuntimeError, match="another content is another shard"):
        applying.apply(body("FlagShard", {**SHARD, "digest": "sha256:2"}))


# -- FeatureFlagConfiguration, through each of its versions --------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "spec",
    [
        {"flagSpec": FLAGS},
        {"featureFlagSpec": FLAGS},
        {"featureFlagSpec": json.dumps(FLAGS)},
        {"shards": [{"name": "s1", "digest": "d1"}]},
    ],
    ids=["flagSpec", "an object", "a string", "shards"],
)
def test_every_form_is_kept_through_every_version(applying: Applying, version: str, spec: Any) -> None:
    applying.apply(configuration_of(spec, version))
    for each in VERSIONS:
        found = applying.get("ffc", version=each)
        assert found["spec"] == spec
        assert "observedGeneration" in found["status"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"flagSpec": {}}, id="no flags"),
        pytest.param({"flagSpec": {"flags": []}}, id="a list"),
        pytest.param({"flagSpec": {"flags": {"a": "on"}}}, id="no flag"),
        pytest.param({"shards": []}, id="no shards"),
        pytest.param({"shards": [{"name": "s1"}]}, id="a shard without a digest"),
    ],
)
def test_what_holds_no_flags_is_refused_through_every_version(
    refusing: Applying, version: str, spec: Any
) -> None:
    assert re.search(
        "is invalid|ValidationError|Required value", refusing.refusal_of(configuration_of(spec, version))
    )


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(None, id="no spec"),
        pytest.param({}, id="an empty spec"),
        pytest.param({"flagSpec": FLAGS, "featureFlagSpec": FLAGS}, id="two at once"),
        pytest.param({"serviceProvider": {"name": "flagd"}}, id="only what nobody reads"),
    ],
)
def test_only_the_newest_version_refuses_a_spec_without_one_form_of_flags(
    refusing: Applying, spec: Any
) -> None:
    assert re.search("is invalid|ValidationError|Required value", refusing.refusal_of(configuration_of(spec)))
    older = json.loads(configuration_of(spec, "v1alpha1"))
    if spec is None:
        del older["spec"]
    refusing.apply(json.dumps(older), "--dry-run=server")


def test_the_first_manifest_of_all_applies_as_printed(applying: Applying) -> None:
    assert "created" in applying.apply(manifest())
    found = applying.get("ffc", "featureflagconfiguration-sample")
    assert set(json.loads(found["spec"]["featureFlagSpec"])) == {"newWelcomeMessage", "hexColor", "fibAlgo"}


def test_an_operators_manifest_applies_unchanged(applying: Applying) -> None:
    targeting = {"if": [{"ends_with": [{"var": "email"}, "@x.org"]}, "on", None]}
    flag = {**FLAGS["flags"]["a"], "targeting": targeting, "metadata": {"owner": "a", "weight": 1}}
    spec = {
        "flagSpec": {
            "flags": {"a": flag, "b": {**flag, "defaultVariant": None}},
            "$evaluators": {"e": targeting},
            "metadata": {"m": True},
        }
    }
    # Client-side apply drops what is null before it sends it.
    applying.apply(configuration_of(spec, kind="FeatureFlag"), "--server-side")
    assert applying.get("ff")["spec"] == spec


# -- what kubectl calls them ---------------------------------------------------------------------------------


def test_kinds_have_short_names_and_a_category(applying: Applying, cluster: Plane) -> None:
    output = cluster.kubectl("api-resources", "--categories", "flagstaff", "--no-headers")
    names = {line.split()[0]: line.split()[1] for line in output.splitlines()}
    assert names == {
        "flagsources": "fsrc", "flagsets": "fset", "flagreceivers": "frcv", "flagshards": "fshard",
        "flagproviders": "fprov", "flagalerts": "falert", "flaggrants": "fgrant", "flagoverrides": "fover",
        "flagrollouts": "froll", "metrictemplates": "mtmpl", "flagpolicies": "fpol",
        "featureflags": "ff", "featureflagconfigurations": "ffc",
        "featureflagsources": "ffs", "inprocessconfigurations": "ipc", "flagds": "fd",
        "evaluatorupgrades": "eup",
    }  # fmt: skip
    applying.apply(body("FlagSource", SOURCE))
    applying.apply(configuration_of({"flagSpec": FLAGS}))
    listed = cluster.kubectl("get", "flagstaff", "-n", applying.namespace, "-o", "name")
    assert listed.split() == [
        "featureflagconfiguration.core.openfeature.dev/x", "flagsource.flagstaff.dev/x",
    ]  # fmt: skip


COLUMNS: Final = {
    "fsrc": "NAME READY REVISION SINCE SUSPENDED AGE STATUS",
    "fset": "NAME READY REVISION SINCE FLAGS SERVED ROLLOUT OVERRIDE SUSPENDED AGE STATUS",
    "frcv": "NAME READY STATUS AGE",
    "fprov": "NAME READY DELIVERED WAITING DEAD AGE",
    "falert": "NAME READY PROVIDER WAITING STATUS AGE",
    "fover": "NAME SET FLAG VARIANT REASON EXPIRES STATE READY AGE STATUS",
    "froll": "NAME SET PHASE RUNNING FURTHEST READY AGE STATUS",
    "mtmpl": "NAME PROVIDER AGE",
    "fpol": "NAME ACTION AGE",
    "ffc": "NAME READY REVISION FLAGS SERVED ROLLOUT OVERRIDE AGE",
    "ffs": "NAME READY SOURCE PROVIDER AGE STATUS",
    "ipc": "NAME READY SELECTOR HOST AGE STATUS",
    "flagd": "NAME READY REPLICAS SOURCE AGE STATUS",
    "eup": "NAME READY PODS CURRENT OUTDATED SUSPENDED AGE STATUS",
}


def test_a_line_says_whether_it_is_live_which_revision_and_since_when(
    applying: Applying, cluster: Plane
) -> None:
    objects = [
        body("FlagSource", SOURCE),
        body("FlagSet", SET),
        body("FlagReceiver", HOOK),
        body("FlagProvider", PROVIDER),
        body("FlagAlert", ALERT),
        body("FlagOverride", OVERRIDE),
        body("FlagRollout", ROLLOUT),
        body("MetricTemplate", TEMPLATE),
        body("FlagPolicy", POLICY),
        configuration_of({"flagSpec": FLAGS}),
        configuration_of({"sources": [{"source": "x"}]}, kind="FeatureFlagSource"),
        configuration_of({"selector": "x"}, kind="InProcessConfiguration"),
        configuration_of({"featureFlagSource": "x"}, kind="Flagd"),
        body("EvaluatorUpgrade", {}),
    ]
    applying.apply("\n---\n".join(objects))
    printed = {short: cluster.kubectl("get", short, "-n", applying.namespace) for short in COLUMNS}
    assert {short: " ".join(text.splitlines()[0].split()) for short, text in printed.items()} == COLUMNS


@pytest.mark.parametrize(
    "kind",
    [
        "flagsource", "flagset", "flagreceiver", "flagprovider", "flagalert", "flaggrant", "flagoverride",
        "flagrollout", "metrictemplate", "flagpolicy",
        "ffc", "ff", "ffs",
        "ipc", "flagd", "flagshard", "evaluatorupgrade",
    ],
)  # fmt: skip
def test_kubectl_explains_every_kind(cluster: Plane, kind: str) -> None:
    output = cluster.kubectl("explain", f"{kind}.spec")
    assert "FIELDS:" in output
