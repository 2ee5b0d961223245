"""All that a spec alone says is wrong with it, by kind; and that stages take what is not refused here."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api.fields import read
from controller.api.flagalert import FlagAlertSpec, expression
from controller.api.flagset import DEPENDENCY_VARIABLES, FlagSetSpec
from controller.api.flagsource import FlagSourceSpec
from controller.api.kinds import (
    EVALUATOR_UPGRADE,
    FEATURE_FLAG,
    FEATURE_FLAG_SOURCE,
    FLAG_ALERT,
    FLAG_GRANT,
    FLAG_OVERRIDE,
    FLAG_POLICY,
    FLAG_PROVIDER,
    FLAG_RECEIVER,
    FLAG_ROLLOUT,
    FLAG_SET,
    FLAG_SOURCE,
    FLAGD,
    IN_PROCESS_CONFIGURATION,
    KINDS,
    METRIC_TEMPLATE,
)
from controller.api.meta import ObjectKey
from controller.flagsets.layers import within
from controller.runtime.expressions import Expression
from controller.runtime.setbacks import Stalled
from controller.sources.backend import FetchRequest
from controller.sources.bucket_factory import BucketFactory
from controller.sources.freshness import Freshness
from controller.sources.git_factory import GitFactory
from controller.sources.oci_backend import OciFactory
from controller.sources.source_files import matcher
from controller.sources.versions import highest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from controller.api.kind import Kind

GIT: Final = {"url": "https://example.com/flags"}
OCI: Final = {"url": "oci://ghcr.io/team/flags"}
BUCKET: Final = {"bucketName": "flags", "endpoint": "minio.example.com"}
REF: Final = {"kind": "FlagSource", "name": "flags"}
KEY: Final = {"secretRef": {"name": "keys"}}
SIGNERS: Final = [{"signers": ["ada"]}]
ODD: Final = {"interval": "1d", "timeout": "x", "ignore": "!"}
OF_TAGS: Final = {"verify": {"mode": "Tag", **KEY}}
SECRETS: Final = {"kind": "Secret", "name": "A"}
OVERRIDE: Final[dict[str, Any]] = {
    "flagSetRef": {"name": "flags"}, "flag": "a", "variant": "on", "reason": "INC-1",
    "expiresAt": "2026-12-01T18:00:00Z",
}  # fmt: skip
ROLLOUT: Final[dict[str, Any]] = {
    "flagSetRef": {"name": "flags"}, "flags": ["new-*"], "steps": [{"share": 1}],
}  # fmt: skip
WINDOW: Final[dict[str, Any]] = {"days": ["Mon"], "from": "08:00", "to": "16:00", "timeZone": "Europe/Berlin"}
NAMES: Final = ("target.name", "substituteFrom.0.name", "serviceAccountName")


def invalid(*said: str) -> list[str]:
    return [f"InvalidSpec spec.{each}" for each in said]


def git(**spec: Any) -> dict[str, Any]:
    return {"interval": "1m", "git": {**GIT, **spec}}


def oci(**spec: Any) -> dict[str, Any]:
    return {"interval": "1m", "oci": {**OCI, **spec}}


def bucket(**spec: Any) -> dict[str, Any]:
    return {"interval": "1m", "bucket": {**BUCKET, **spec}}


def flag_set(**spec: Any) -> dict[str, Any]:
    return {"sourceRef": REF, **spec}


def alert(**spec: Any) -> dict[str, Any]:
    return {"providerRef": {"name": "chat"}, "eventSources": [{"kind": "FlagSet", "name": "*"}], **spec}


def provider(type_: str, **spec: Any) -> dict[str, Any]:
    return {"type": type_, **spec}


def keyless(**identity: str) -> dict[str, Any]:
    return {"matchOIDCIdentity": [{"issuer": "^https://a$", "subject": "^ada$", **identity}]}


ROWS: Final[list[tuple[Kind, Any, list[str]]]] = [
    (FLAG_SOURCE, git(), []),
    (FLAG_SOURCE, None, ["InvalidSpec spec: must have fields"]),
    (FLAG_SOURCE, {"git": GIT, "oci": OCI, "interval": "1m"}, ["InvalidSpec spec: set exactly one of git"]),
    (
        FLAG_SOURCE,
        {**git(url="https://h", ref={"tag": "a b", "semver": "new"}), **ODD},
        [
            *invalid("interval: must be a duration", "timeout: must be a duration"),
            *invalid("ignore: cannot be read as patterns"),
            "URLInvalid spec.git.url: not a valid repository location: it names a host but no repository",
            "InvalidReference spec.git.ref.tag: 'a b' is not a valid tag name in Git",
            "InvalidReference spec.git.ref.semver: 'new' is not a version range",
        ],
    ),
    (FLAG_SOURCE, git(url="git@h:a"), invalid("git.url: write ssh://git@h/a")),
    (FLAG_SOURCE, git(url="https://a%0Ab@h/r"),
     ["InvalidCredentials spec.git.url: a username, password or token with"]),
    (FLAG_SOURCE, git(url="ssh://git@h/a"), ["AuthenticationFailed spec.git.secretRef: ssh needs a Secret"]),
    (FLAG_SOURCE, git(url="ssh://git@h/a", **KEY), []),
    (FLAG_SOURCE, git(ref={"commit": "a" * 64}), ["InvalidReference spec.git.ref.commit: 'aaaa"]),
    (FLAG_SOURCE, git(ref={"branch": "refs/heads/main", "tag": "refs/tags/v1"}), []),
    (FLAG_SOURCE, git(ref={"branch": "refs/pull/1/head"}),
     ["InvalidReference spec.git.ref.branch: 'refs/pull/1/head' is not the name of a branch; write"]),
    (FLAG_SOURCE, git(ref={"name": "main"}),
     ["InvalidReference spec.git.ref.name: 'main' is not a full reference name"]),
    (FLAG_SOURCE, git(sparseCheckout=["../a"]), invalid("git.sparseCheckout.0: must be a folder within")),
    (FLAG_SOURCE, git(url="file:///a", recurseSubmodules=True),
     invalid("git.recurseSubmodules: needs a remote")),
    (FLAG_SOURCE, {**git(), **OF_TAGS}, ["InvalidVerificationMode spec.verify.mode: Tag needs a tag"]),
    (FLAG_SOURCE, {**git(ref={"semver": "1.x"}), **OF_TAGS}, []),
    (FLAG_SOURCE,
     {**git(), "verify": {**KEY, **keyless(), "rules": [{"paths": ["[z-a]"], "anyOf": SIGNERS}]}},
     invalid("verify.rules.0.paths: [z-a]: cannot be read as patterns")),
    (FLAG_SOURCE, {**git(), "verify": {**KEY, **keyless(), "rules": [{"paths": ["a"], "anyOf": SIGNERS}]}},
     invalid("verify: set exactly one of secretRef", "verify: rules need mode")),
    (
        FLAG_SOURCE,
        {
            **oci(url="oci://h", ref={"tag": "-", "digest": "x", "semverFilter": "("}),
            "verify": keyless(issuer="(", subject=".*"),
        },
        [
            "URLInvalid spec.oci.url: not a valid address of a repository",
            "InvalidReference spec.oci.ref.tag: '-' is not a tag",
            "InvalidReference spec.oci.ref.semverFilter: not an RE2 expression: missing )",
            "InvalidReference spec.oci.ref.digest: 'x' is not a digest",
            "InvalidIdentity spec.verify.matchOIDCIdentity.0.issuer: not an RE2 expression",
            "InvalidIdentity spec.verify.matchOIDCIdentity.0.subject: matches everybody",
        ],
    ),
    (FLAG_SOURCE, bucket(), []),
    (FLAG_SOURCE, bucket(endpoint=""), invalid("bucket.endpoint: is required for provider generic")),
    (FLAG_SOURCE, bucket(endpoint="http://h"), ["URLInvalid spec.bucket.endpoint: http:// needs insecure"]),
    (FLAG_SOURCE, bucket(endpoint="h?x"), ["URLInvalid spec.bucket.endpoint: write HOST"]),
    (FLAG_SOURCE, bucket(provider="aws"),
     invalid("bucket.endpoint: without secretRef it must be a host of aws")),
    (FLAG_SOURCE, bucket(provider="aws", **KEY), []),
    (FLAG_SET, flag_set(paths=["flags/base", "**"]), []),
    (FLAG_SET, flag_set(paths=["/a", "a/../b"]),
     invalid("paths.0: absolute path", "paths.1: leads out of the repository")),
    (FLAG_SET, flag_set(serviceAccountName="a/b", target={"name": ".."}, substituteFrom=[SECRETS]),
     invalid(*(f"{each}: must be an object's name" for each in NAMES))),
    (
        FLAG_SET,
        flag_set(
            sourceRef={**REF, "apiVersion": "source.toolkit.fluxcd.io/v1"},
            dependsOn=[{"name": "a"}, *({"name": "a", "readyExpr": each} for each in ("x ==", "event.x"))],
        ),
        invalid(
            "sourceRef.apiVersion: a FlagSource belongs to the API group flagstaff.dev",
            "dependsOn.1.readyExpr: 1:",
            'dependsOn.2.readyExpr: 1:1: "event" is not known; there is dep, self',
        ),
    ),
    (FLAG_ALERT, alert(eventSeverity="error", template="$name"), []),
    (
        FLAG_ALERT,
        alert(inclusionList=["a", "("], template="$x", **{"for": "1"}),
        invalid(
            "inclusionList.1: not an RE2 expression: missing )",
            "for: must be a duration",
            'template: 1:1: "x" is not known; there is alert',
        ),
    ),
    (FLAG_RECEIVER, {"type": "svn", "resources": []}, invalid("type: ", "secretRef: ", "resources: ")),
    (FLAG_GRANT, {"from": [{"group": "", "kind": "Node", "namespace": "a"}]},
     invalid("from.0.kind: ", "to: ")),
    (FLAG_OVERRIDE, {"flagSetRef": {"name": "_"}, "flag": "", "reason": " ", "expiresAt": "2026-12-01"},
     invalid("flagSetRef.name: ", "flag: ", "reason: must say why", "expiresAt: must be a time such as")),
    (FLAG_OVERRIDE, {**OVERRIDE, "disabled": True},
     ["InvalidSpec spec: set exactly one of variant and disabled: true"]),
    (FLAG_OVERRIDE, {**OVERRIDE, "variant": None, "disabled": True, "audience": {"var": "a"}},
     ["InvalidSpec spec: audience needs a variant"]),
    (FLAG_OVERRIDE, {**OVERRIDE, "expiresAt": "9999-12-31T23:59:59-01:00"}, invalid("expiresAt: must be")),
    (FLAG_OVERRIDE, {**OVERRIDE, "audience": {"==": [{"var": "country"}, "NL"]}}, []),
    (FLAG_ROLLOUT, {**ROLLOUT, "flags": [], "steps": []}, invalid("flags: ", "steps: ")),
    (FLAG_ROLLOUT, {**ROLLOUT, "steps": [{"share": 1, "audience": {"var": "a"}}]},
     invalid("steps.0: set exactly one of audience and share")),
    (FLAG_ROLLOUT, {**ROLLOUT, "steps": [{"share": 10}, {"share": 10}]},
     ["InvalidSpec spec: shares must increase from step to step"]),
    (FLAG_ROLLOUT, {**ROLLOUT, "steps": [{"share": 1, "at": "2026-12-01T08:00:00+01:00"},
                                         {"share": 2, "at": "2026-12-01T06:59:59Z"}]},
     ["InvalidSpec spec: at must not be earlier than in a step before"]),
    (FLAG_ROLLOUT, {**ROLLOUT, "steps": [{"share": 1, "at": "2026-12-01T08:00:00+01:00"},
                                         {"share": 2, "at": "2026-12-01T07:00:00Z"}]}, []),
    (FLAG_ROLLOUT, {**ROLLOUT, "steps": [{"share": 1, "at": "2026-12-01T08:00:00"}]},
     invalid("steps.0.at: must be a time")),
    (FLAG_ROLLOUT, {**ROLLOUT, "steps": [{"share": 0.125}, {"share": 100.5}]},
     invalid("steps.0.share: must have at most two decimals", "steps.1.share: ")),
    (FLAG_ROLLOUT, {**ROLLOUT, "windows": [{**WINDOW, "from": "8:00", "timeZone": "Berlin"}],
                    "freeze": [{"from": "2026-12-24", "to": "2026-12-27T00:00:00Z"}]},
     invalid("windows.0.from: ", "windows.0.timeZone: must be a time zone", "freeze.0.from: must be a time")),
    (FLAG_ROLLOUT, {**ROLLOUT, "windows": [WINDOW], "steps": [{"share": 0.01}, {"share": 100}]}, []),
    (FLAG_ROLLOUT, {**ROLLOUT, "analysis": {"metrics": [{"name": "errors", "type": "median"}]}},
     invalid("analysis.metrics.0.type: ")),
    (FLAG_POLICY, {"action": "Deny", "validations": [{"expression": "plan.most <= size(later)"}]},
     invalid("validations.0.expression: ")),
    (FLAG_POLICY, {"action": "Deny", "validations": [{"expression": "true"}], "timeZone": "Berlin"},
     invalid("timeZone: must be a time zone such as Europe/Zurich")),
    (METRIC_TEMPLATE, {"provider": {"type": "graphite", "address": "http://h"}, "query": "up"},
     invalid("provider.type: ")),
    (METRIC_TEMPLATE, {"provider": {"type": "http", "address": "http://h"}, "query": "up"},
     invalid("provider: type http needs jsonPath")),
    (EVALUATOR_UPGRADE, {"pause": "1 m", "maxConcurrent": 0}, invalid("maxConcurrent: ", "pause: ")),
    (FLAGD, {"replicas": -1, "ingress": {"hosts": [], "flagdPath": "a"}},
     invalid("replicas: ", "featureFlagSource: ", "ingress.flagdPath: ")),
    (FLAG_PROVIDER, {"type": "generic", "address": "https://hooks.example.com/x"}, []),
    (FLAG_PROVIDER, provider("generic"),
     ['AddressNotFound spec.secretRef: type generic needs spec.address, or a Secret with a key "address"']),
    (FLAG_PROVIDER, provider("github", address="https://github.com/shop/flags"),
     ['TokenNotFound spec.secretRef: type github needs a Secret with a key "token", '
      "or those of a GitHub App"]),
    (FLAG_PROVIDER, provider("github", address="https://github.com/shop", **KEY), []),
    (FLAG_PROVIDER, provider("gitea", address="https://gitea.com/shop"),
     ["TokenNotFound spec.secretRef: type gitea", "InvalidAddress spec.address: it must be a repository's"]),
    (FLAG_PROVIDER, provider("generic", address="http://10.0.0.1/x"), []),
    (FLAG_PROVIDER, provider("generic", address="http://169.254.169.254/x"),
     ["InvalidAddress spec.address: 169.254.169.254 is not a public address"]),
    (FLAG_PROVIDER, provider("email", channel="a@x.com, b@x.com", username="a@x.com\nBcc: b@x.com", **KEY),
     [f"InvalidAddress spec.{each}: must be one mailbox" for each in ("channel", "username")]),
    (FLAG_PROVIDER, {"type": "smoke"}, ["InvalidSpec spec.type: must be one of 'generic'"]),
    (FEATURE_FLAG_SOURCE, {"sources": [{"source": "x"}], "envVars": [{"name": "A"}]}, []),
    (FEATURE_FLAG_SOURCE, {"sources": [{"source": ""}], "port": 99_999, "startDeadline": "soon"},
     invalid("sources.0.source: must have from 1 to 1024", "port: must be from 0 to 65535",
             "startDeadline: must be a duration")),
    (IN_PROCESS_CONFIGURATION, {}, []),
    (IN_PROCESS_CONFIGURATION, {"port": -1, "selector": "x" * 513},
     invalid("port: must be from 0 to 65535", "selector: must have at most 512")),
    (FEATURE_FLAG, {"flagSpec": 7}, []),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "spec", "wanted"), ROWS)
def test_all_that_is_wrong_is_told_by_field_with_the_reason_of_its_condition(
    kind: Kind, spec: Any, wanted: list[str]
) -> None:
    found = [f"{each.reason} {each}" for each in kind.validate(spec)]
    assert [each[: len(start)] for each, start in zip_longest(found, wanted, fillvalue="")] == wanted


def test_each_kind_that_a_user_writes_is_validated_and_has_a_row() -> None:
    written = {each.kind for each in KINDS if each.judged}
    assert {kind.kind for kind, _, _ in ROWS} == written | {FEATURE_FLAG.kind}


# -- what is not refused here is used ------------------------------------------------------------------------

PARTS: Final = st.lists(
    st.sampled_from(
        ["a", "main", "-", "..", "/", "//", "refs/heads/", "@", ":", "*", "[", "]", "!", "\\", ".", "~", "^",
         " ", "\n", "\0", "1.2", ">=1", "v1", ",", "x", "(", ")", "|", "?", "%0a", "%2e", "#", "é", "\ud800",
         "git@", "h", "https://", "http://", "ssh://", "file:///", "oci://", "event", "dep", "self", " == ",
         "'", "$", "${", "}", "name", "[::1]", "99999"]
    ),
    max_size=6,
).map("".join) | st.text(max_size=12)  # fmt: skip
JSON: Final = st.recursive(
    PARTS | st.none() | st.integers() | st.booleans(),
    lambda inner: st.lists(inner) | st.dictionaries(PARTS, inner),
    max_leaves=4,
)


def of(required: dict[str, Any], **optional: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with these fields, now and then with one that is something else altogether."""
    fields = {
        name: each if isinstance(each, st.SearchStrategy) else st.just(each)
        for name, each in required.items()
    }
    odd = st.dictionaries(st.sampled_from(sorted({*required, *optional})), JSON, min_size=1, max_size=1)
    other = st.integers(0, 15).flatmap(lambda number: odd if number == 15 else st.just({}))
    return st.builds(
        lambda made, more: {**made, **more}, st.fixed_dictionaries(fields, optional=optional), other
    )


def near(*right: str) -> st.SearchStrategy[str]:
    """Texts of which many are right."""
    return st.sampled_from(right) | st.builds("{}{}".format, st.sampled_from(right), PARTS) | PARTS


NAME: Final = st.just({"name": "keys"})
PATTERNS: Final = near("*.md", "flags/**", "!a")
RULES: Final = st.lists(
    of({"paths": st.lists(PATTERNS, min_size=1, max_size=2), "anyOf": SIGNERS}), max_size=2
)
IDENTITIES: Final = st.lists(
    of({"issuer": near("^https://a$"), "subject": near("^ada@")}), min_size=1, max_size=2
)
SIGNED: Final = of({"secretRef": NAME, "mode": "EveryCommit", "rules": RULES}) | of(
    {"secretRef": NAME}, mode=st.sampled_from(["HEAD", "Tag"])
)
KEYLESS: Final = of({"matchOIDCIdentity": IDENTITIES})
SEMVER: Final = near("1.x", ">=1 <2", "^2, v3")
GIT_REFS: Final = of(
    {},
    branch=near("main", "a/b"),
    tag=near("v1"),
    semver=SEMVER,
    name=near("refs/heads/a", "refs/tags/v1"),
    commit=near("a" * 40),
)
OCI_REFS: Final = of(
    {}, tag=near("v1"), semver=SEMVER, semverFilter=near("^v", "."), digest=near("sha256:" + "0" * 64)
)
GITS: Final = of(
    {"url": near("https://h/a", "ssh://git@h/a", "file:///a"), "secretRef": NAME},
    recurseSubmodules=st.booleans(),
    sparseCheckout=st.lists(near("flags"), max_size=2),
    ref=GIT_REFS,
)
OCIS: Final = of({"url": near("oci://h/a", "oci://[::1]:1/a/b")}, ref=OCI_REFS)
BUCKETS: Final = of(
    {"bucketName": "flags"},
    endpoint=near("h", "https://s3.amazonaws.com", "http://h:1"),
    provider=st.sampled_from(["generic", "aws", "gcp", "azure"]),
    insecure=st.booleans(),
    prefix=PARTS,
    secretRef=NAME,
)
SOURCES: Final = (
    of({"interval": "1m", "git": GITS}, ignore=PATTERNS, verify=SIGNED)
    | of({"interval": "1m", "oci": OCIS}, ignore=PATTERNS, verify=KEYLESS)
    | of({"interval": "1m", "bucket": BUCKETS}, ignore=PATTERNS)
)
SETS: Final = of(
    {"sourceRef": of({"kind": "FlagSource", "name": "flags"}, apiVersion=near("flagstaff.dev/v1"))},
    paths=st.lists(near("flags", "flags/**", "a/*.json"), min_size=1, max_size=3),
    dependsOn=st.lists(of({"name": "base"}, readyExpr=near("dep.status.x == self.spec.y")), max_size=2),
)
ALERTS: Final = of(
    {"providerRef": NAME, "eventSources": [{"kind": "FlagSet", "name": "*"}]},
    inclusionList=st.lists(near("^a", "[b-c]+"), max_size=2),
    inclusion=near("event.reason == 'a'", "has(event.labels.b)"),
    template=near("$name", "${reason}: $message"),
)
SECRET: Final = {"username": b"ada", "password": b"x", "identity": b"x", "known_hosts": b"x"}
NOW: Final = datetime(2026, 1, 2, tzinfo=UTC)
OF_SPECS: Final = {
    "URLInvalid", "InvalidSpec", "InvalidReference", "InvalidIdentity", "InvalidVerificationMode",
    "AuthenticationFailed",
}  # fmt: skip


async def secret(namespace: str, name: str, account: str | None) -> Mapping[str, bytes]:
    del namespace, name, account
    return SECRET


async def open_source(spec: FlagSourceSpec, folder: Path) -> None:
    look = FetchRequest(
        ObjectKey("FlagSource", "shop", "flags"), 1.0, Freshness(NOW, NOW), verify=spec.verify
    )
    factories: dict[str, Any] = {
        "git": lambda: GitFactory(secret, folder, allow_local=True),
        "oci": lambda: OciFactory(secret),
        "bucket": lambda: BucketFactory(secret),
    }
    factory = factories[spec.provider]()
    try:
        await factory.open(getattr(spec, spec.provider), look)
    except Stalled as stalled:
        # What the Secret has may not be what is needed.
        if stalled.reason in OF_SPECS:
            raise
    finally:
        await factory.close()


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
@settings(max_examples=150, deadline=None)
@given(spec=SOURCES)
def test_a_factory_opens_each_source_that_is_not_refused(
    spec: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if FLAG_SOURCE.validate(spec):
        return
    made = read(FlagSourceSpec, spec)
    matcher(made.ignore, "spec.ignore")
    for provider in (made.git, made.oci):
        if provider is not None and provider.ref.semver is not None:
            highest(["1.2.3", "v2"], provider.ref.semver)
    asyncio.run(open_source(made, tmp_path_factory.getbasetemp() / "mirrors"))


@given(spec=SETS)
def test_a_flag_set_that_is_not_refused_is_read(spec: Any) -> None:
    if FLAG_SET.validate(spec):
        return
    made = read(FlagSetSpec, spec)
    for path in made.paths:
        within(path)
    for each in made.depends_on:
        if each.ready_expr is not None:
            Expression.of(each.ready_expr, DEPENDENCY_VARIABLES)


@given(spec=ALERTS)
def test_an_alert_that_is_not_refused_is_used(spec: Any) -> None:
    if FLAG_ALERT.validate(spec):
        return
    for each in read(FlagAlertSpec, spec).inclusion_list:
        expression(each)


@given(st.sampled_from([each for each in KINDS if each.judged]), JSON)
def test_nothing_that_stands_there_raises(kind: Kind, spec: Any) -> None:
    assert all(each.field.startswith("spec") and each.message for each in kind.validate(spec))
