"""What Bitbucket, Azure DevOps and registries send of a push, and which sources follow it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from controller.events.pushes import Push, Update, followed_update, normalise_url, places_of, repositories
from controller.events.webhook_payloads import Quiet, Refusal, read_delivery
from tests.worlds.events import COMMIT, TOKEN, ZEROS, body_of, headers_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.flagreceiver import Sender

DIGEST: Final = "sha256:" + "d" * 64
CLOUD: Final[Mapping[str, Any]] = {
    "push": {
        "changes": [
            {"old": None, "new": {"type": "branch", "name": "main", "target": {"hash": COMMIT}}},
            {"old": None, "new": {"type": "tag", "name": "v1", "target": {"hash": COMMIT}}},
            {"old": {"type": "branch", "name": "gone", "target": {"hash": COMMIT}}, "new": None},
        ]
    },
    "repository": {
        "full_name": "acme/flags", "type": "repository",
        "links": {"html": {"href": "https://bitbucket.org/acme/flags"}},
    },
}  # fmt: skip
DATA_CENTER: Final[Mapping[str, Any]] = {
    "eventKey": "repo:refs_changed",
    "repository": {"slug": "flags", "project": {"key": "SHOP"}},
    "changes": [
        {
            "ref": {"id": "refs/heads/main", "displayId": "main", "type": "BRANCH"},
            "fromHash": ZEROS, "toHash": COMMIT, "type": "UPDATE",
        }
    ],
}  # fmt: skip
AZURE: Final[Mapping[str, Any]] = {
    "eventType": "git.push",
    "resource": {
        "refUpdates": [{"name": "refs/heads/main", "oldObjectId": ZEROS, "newObjectId": COMMIT}],
        "repository": {"name": "flags", "remoteUrl": "https://acme@dev.azure.com/acme/Shop/_git/flags"},
    },
}
_RESOURCES: Final = [{"digest": DIGEST, "tag": "eu", "resource_url": "harbor.example:8443/shop/flags:eu"}]
HARBOR: Final[Mapping[str, Any]] = {
    "type": "PUSH_ARTIFACT",
    "event_data": {"resources": _RESOURCES, "repository": {"repo_full_name": "shop/flags"}},
}
CLOUD_EVENT: Final[Mapping[str, Any]] = {
    "specversion": "1.0", "type": "harbor.artifact.pushed", "data": {"resources": _RESOURCES},
}  # fmt: skip
QUAY: Final[Mapping[str, Any]] = {
    "repository": "shop/flags", "docker_url": "quay.io/shop/flags", "updated_tags": ["eu", "us"],
}  # fmt: skip
DOCKER_HUB: Final[Mapping[str, Any]] = {
    "push_data": {"tag": "eu"}, "repository": {"repo_name": "shop/flags"},
}  # fmt: skip


def read(sender: Sender, payload: Mapping[str, Any], event: str = "push") -> Push | Quiet | Refusal:
    body = body_of(payload)
    return read_delivery(sender, headers_of(sender, body, event=event), body, [TOKEN])


def push_of(sender: Sender, payload: Mapping[str, Any], event: str = "push") -> Push:
    push = read(sender, payload, event)
    assert isinstance(push, Push), push
    return push


MAIN: Final = Update("refs/heads/main", COMMIT)
EU: Final = Update("eu", "d" * 64)


@pytest.mark.parametrize(
    ("sender", "event", "payload", "place", "updates"),
    [
        pytest.param(
            "bitbucket", "repo:push", CLOUD, "bitbucket.org/acme/flags",
            (MAIN, Update("refs/tags/v1", COMMIT), Update("refs/heads/gone")), id="Bitbucket Cloud",
        ),
        pytest.param(
            "bitbucket", "repo:refs_changed", DATA_CENTER, "*/shop/flags", (MAIN,), id="Bitbucket Data Center"
        ),
        pytest.param("azure-devops", "", AZURE, "dev.azure.com/acme/shop/_git/flags", (MAIN,), id="Azure"),
        pytest.param("harbor", "", HARBOR, "oci://harbor.example/shop/flags", (EU,), id="Harbor"),
        pytest.param("harbor", "", CLOUD_EVENT, "oci://harbor.example/shop/flags", (EU,), id="events"),
        pytest.param("quay", "", QUAY, "oci://quay.io/shop/flags", (Update("eu"), Update("us")), id="Quay"),
        pytest.param("dockerhub", "", DOCKER_HUB, "oci://docker.io/shop/flags", (Update("eu"),), id="Docker"),
        pytest.param(
            "generic-hmac", "", {"repository": "oci://ghcr.io/shop/flags", "ref": "eu", "commit": DIGEST},
            "oci://ghcr.io/shop/flags", (EU,), id="an artifact",
        ),
        pytest.param(
            "generic-hmac", "", {"repository": "s3://flags/shop"}, "s3://flags", (Update(),), id="a bucket"
        ),
    ],
)  # fmt: skip
def test_a_push_names_its_place_and_what_changed(
    sender: Sender, event: str, payload: Mapping[str, Any], place: str, updates: tuple[Update, ...]
) -> None:
    push = push_of(sender, payload, event)
    assert repositories(push) == {place}
    assert push.updates == updates


@pytest.mark.parametrize(
    ("sender", "event", "payload"),
    [
        ("bitbucket", "repo:fork", CLOUD),
        ("azure-devops", "", {**AZURE, "eventType": "git.pullrequest.created"}),
        ("harbor", "", {**HARBOR, "type": "PULL_ARTIFACT"}),
        ("quay", "", {"repository": "shop/flags", "vulnerability": {}}),
    ],
)  # fmt: skip
def test_other_events_wake_nothing(sender: Sender, event: str, payload: Mapping[str, Any]) -> None:
    assert isinstance(read(sender, payload, event), Quiet)


def test_the_test_of_bitbuckets_connection_is_answered() -> None:
    assert read("bitbucket", {"test": True}, "diagnostics:ping") == Quiet("pong")


@pytest.mark.parametrize(
    ("sender", "event", "payload"),
    [
        ("bitbucket", "repo:push", {"push": {}}),
        ("azure-devops", "", {"eventType": "git.push"}),
        ("harbor", "", {"type": "PUSH_ARTIFACT"}),
        ("quay", "", {"updated_tags": ["eu"]}),
        ("dockerhub", "", {"push_data": {"tag": "eu"}}),
    ],
)  # fmt: skip
def test_a_push_of_nothing_is_refused(sender: Sender, event: str, payload: Mapping[str, Any]) -> None:
    refusal = read(sender, payload, event)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.message) == (400, "the payload names no repository")


def test_a_tag_of_an_artifact_is_no_full_name() -> None:
    refusal = read("generic-hmac", {"repository": "oci://ghcr.io/shop/flags", "ref": "a b"})
    assert isinstance(refusal, Refusal)
    assert refusal.message == "`ref` must be a tag such as production"


def test_of_a_push_of_very_many_references_any_may_have_changed() -> None:
    updates = [{"name": f"refs/heads/{number}", "newObjectId": COMMIT} for number in range(101)]
    payload = {**AZURE, "resource": {**AZURE["resource"], "refUpdates": updates}}
    assert push_of("azure-devops", payload).updates == (Update(),)


@pytest.mark.parametrize(
    "url",
    [
        "https://dev.azure.com/acme/Shop/_git/flags",
        "https://acme@dev.azure.com/acme/Shop/_git/flags",
        "git@ssh.dev.azure.com:v3/acme/Shop/flags",
        "https://acme.visualstudio.com/Shop/_git/flags",
        "https://acme.visualstudio.com/DefaultCollection/Shop/_git/flags",
        "acme@vs-ssh.visualstudio.com:v3/acme/Shop/flags",
    ],
)
def test_a_repository_of_azure_devops_has_many_spellings(url: str) -> None:
    assert normalise_url(url) == "dev.azure.com/acme/shop/_git/flags"


def test_a_repository_of_azure_devops_may_have_its_projects_name() -> None:
    whole = normalise_url("https://dev.azure.com/acme/flags/_git/flags")
    assert normalise_url("https://dev.azure.com/acme/_git/flags") == whole


def artifact(**reference: str) -> dict[str, Any]:
    return {"oci": {"url": "oci://quay.io/shop/flags", "ref": reference}}


def git(url: str, **reference: str) -> dict[str, Any]:
    return {"git": {"url": url, "ref": reference}}


@pytest.mark.parametrize(
    ("spec", "places"),
    [
        (artifact(tag="eu"), {"oci://quay.io/shop/flags"}),
        ({"oci": {"url": "oci://registry-1.docker.io/shop/flags"}}, {"oci://docker.io/shop/flags"}),
        (git("https://git.example/scm/SHOP/flags.git"), {"git.example/scm/shop/flags", "*/shop/flags"}),
        ({"bucket": {"bucketName": "flags", "endpoint": "minio:9000"}}, {"s3://flags"}),
        ({"bucket": {"bucketName": "flags", "provider": "gcp"}}, {"gs://flags"}),
        ({"bucket": {"bucketName": "flags", "provider": "azure"}}, {"az://flags"}),
        ({"git": 7}, set()),
        ({"oci": {"url": 7}}, set()),
        ({}, set()),
    ],
)  # fmt: skip
def test_a_source_is_known_by_what_it_follows(spec: dict[str, Any], places: set[str]) -> None:
    assert set(places_of(spec)) == places


@pytest.mark.parametrize(
    ("spec", "pushed", "followed"),
    [
        pytest.param(artifact(tag="eu"), EU, True, id="the tag"),
        pytest.param(artifact(tag="us"), EU, False, id="another tag"),
        pytest.param(artifact(), Update("latest"), True, id="latest by default"),
        pytest.param(artifact(), EU, False, id="not latest"),
        pytest.param(artifact(semver=">=1"), Update("v2"), True, id="a range and any tag"),
        pytest.param(artifact(digest=DIGEST), EU, True, id="the pinned digest arrives"),
        pytest.param(artifact(digest=DIGEST), Update("eu", "e" * 64), False, id="another digest"),
        pytest.param(artifact(tag="eu"), Update(), True, id="any tag may have changed"),
        pytest.param({"oci": {"url": "quay.io"}}, EU, False, id="an invalid spec"),
        pytest.param({"bucket": {"bucketName": "flags"}}, Update(), True, id="a bucket"),
    ],
)  # fmt: skip
def test_a_source_is_woken_by_the_tag_that_it_follows(
    spec: dict[str, Any], pushed: Update, followed: bool
) -> None:
    push = Push(("oci://quay.io/shop/flags",), (Update("other"), pushed), "identity")
    update = followed_update(spec, push)
    assert (update == pushed) is followed


def test_the_newest_of_several_updates_is_waited_for() -> None:
    updates = (Update("refs/tags/v1", "a" * 40), MAIN, Update("refs/tags/v2", "b" * 40))
    push = Push(("https://bitbucket.org/acme/flags",), updates, "identity")
    newest = followed_update(git("https://bitbucket.org/acme/flags", semver="*"), push)
    assert newest == updates[-1]
    assert followed_update(git("https://bitbucket.org/acme/flags", branch="main"), push) == MAIN
