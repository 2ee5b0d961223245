"""What deliveries say: who sent them, which repository, and which references follow a push."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api.flagreceiver import Sender
from controller.api.source_spec import GitReference
from controller.events.pushes import Push, Update, follows, normalise_url
from controller.events.webhook_payloads import (
    MOST_BYTES,
    UNSIGNED,
    Quiet,
    Refusal,
    is_authentic,
    read_delivery,
)
from tests.worlds.events import (
    COMMIT,
    DELIVERY,
    GENERIC,
    GITHUB,
    GITLAB,
    OLD,
    TAG_OBJECT,
    TOKEN,
    ZEROS,
    body_of,
    headers_of,
    hexdigest,
)

SIGNERS: tuple[Sender, ...] = ("github", "gitea", "bitbucket", "generic-hmac")
SENDERS: tuple[Sender, ...] = (*SIGNERS, "gitlab", "azure-devops", "harbor")


def deliver(
    sender: Sender, payload: Any, *, events: tuple[str, ...] = (), **headers: str
) -> Push | Quiet | Refusal:
    body = payload if isinstance(payload, bytes) else body_of(payload)
    return read_delivery(sender, headers_of(sender, body, **headers), body, [TOKEN], events)  # type: ignore[arg-type]  # all of them are texts


def push_of(sender: Sender, payload: Any, **headers: Any) -> Push:
    found = deliver(sender, payload, **headers)
    assert isinstance(found, Push)
    return found


@pytest.mark.parametrize(
    ("sender", "payload"),
    [("github", GITHUB), ("gitea", GITHUB), ("gitlab", GITLAB), ("generic-hmac", GENERIC)],
)
def test_a_push_names_repository_reference_and_commit(sender: Sender, payload: Any) -> None:
    push = push_of(sender, payload)
    assert push.updates == (Update("refs/heads/main", COMMIT),)
    assert push.repositories


def test_a_repository_is_found_in_all_its_spellings() -> None:
    assert set(push_of("github", GITHUB).repositories) == set(GITHUB["repository"].values())
    assert set(push_of("gitlab", GITLAB).repositories) == set(GITLAB["project"].values())


TAG = {"ref": "refs/tags/v1", "after": TAG_OBJECT}


@pytest.mark.parametrize(
    ("sender", "payload"),
    [
        pytest.param("github", {**GITHUB, **TAG}, id="github"),
        pytest.param("gitea", {**GITHUB, **TAG}, id="gitea"),
        pytest.param("gitlab", {**GITLAB, **TAG, "object_kind": "tag_push"}, id="gitlab"),
    ],
)
def test_an_annotated_tag_gives_the_commit_not_the_tag(sender: Sender, payload: Any) -> None:
    event = "Tag Push Hook" if sender == "gitlab" else "push"
    push = push_of(sender, payload, event=event)
    assert push.updates == (Update("refs/tags/v1", COMMIT),)


@pytest.mark.parametrize(
    ("sender", "payload"),
    [
        ("github", {**GITHUB, "after": ZEROS, "head_commit": None, "deleted": True}),
        ("gitlab", {**GITLAB, "after": ZEROS, "checkout_sha": None}),
        ("generic-hmac", {**GENERIC, "commit": ZEROS}),
    ],
)
def test_a_deleted_reference_has_no_commit_to_wait_for(sender: Sender, payload: Any) -> None:
    assert push_of(sender, payload).updates == (Update("refs/heads/main"),)


@pytest.mark.parametrize(
    ("event", "payload", "reference"),
    [
        pytest.param("create", {"ref": "v1", "ref_type": "tag"}, "refs/tags/v1", id="a new tag"),
        pytest.param("create", {"ref": "x/y", "ref_type": "branch"}, "refs/heads/x/y", id="a new branch"),
        pytest.param("release", {"release": {"tag_name": "v2"}}, "refs/tags/v2", id="a release"),
        pytest.param("repository", {}, None, id="any reference"),
        pytest.param("repository", {"ref": "refs/heads/a b"}, None, id="no name that Git allows"),
    ],
)  # fmt: skip
def test_other_events_count_where_they_are_asked_for(
    event: str, payload: dict[str, Any], reference: str | None
) -> None:
    whole = {"repository": GITHUB["repository"], **payload}
    assert isinstance(deliver("github", whole, event=event), Quiet)
    push = push_of("github", whole, event=event, events=("create", "release", "repository"))
    assert push.updates == (Update(reference),)


@pytest.mark.parametrize(
    ("events", "event", "counts"),
    [
        ((), "Push Hook", True), ((), "Tag Push Hook", True), ((), "Note Hook", False),
        (("Push Hook",), "Push Hook", True), (("push",), "Push Hook", True),
        (("Tag Push Hook",), "Push Hook", False), ((), "System Hook", True),
    ],
)  # fmt: skip
def test_gitlabs_events_go_by_the_header_or_the_payloads_word(
    events: tuple[str, ...], event: str, counts: bool
) -> None:
    assert isinstance(deliver("gitlab", GITLAB, event=event, events=events), Push) is counts


@pytest.mark.parametrize("sender", ["github", "gitea"])
@pytest.mark.parametrize("events", [(), ("create",)], ids=["by default", "though not listed"])
def test_a_ping_is_answered(sender: Sender, events: tuple[str, ...]) -> None:
    assert deliver(sender, {"zen": "…"}, event="ping", events=events) == Quiet("pong")


@pytest.mark.parametrize(
    ("sender", "payload", "words"),
    [
        pytest.param("github", b"payload=%7B%7D", "content type", id="a form"),
        pytest.param("github", b"[]", "not a JSON object", id="a list"),
        pytest.param("github", b"[" * 100_000, "not a JSON object", id="deep"),
        pytest.param("github", b"\xff\xfe", "not a JSON object", id="no text"),
        pytest.param("github", {"ref": "refs/heads/main"}, "names no repository", id="no repository"),
        pytest.param("github", {"repository": "https://x/y"}, "names no repository", id="no object"),
        pytest.param("github", {"repository": {"clone_url": "x" * 3000}}, "names no repository", id="long"),
        pytest.param("generic-hmac", {}, "`repository` is missing", id="nothing"),
        pytest.param("generic-hmac", {**GENERIC, "ref": "main"}, "full name", id="a short name"),
        pytest.param("generic-hmac", {**GENERIC, "commit": "HEAD"}, "whole SHA", id="no commit"),
        pytest.param("generic-hmac", {**GENERIC, "commit": 7}, "whole SHA", id="a number"),
    ],
)  # fmt: skip
def test_malformed_payload_is_refused_with_the_reason(sender: Sender, payload: Any, words: str) -> None:
    found = deliver(sender, payload)
    assert isinstance(found, Refusal)
    assert found.status == 400
    assert words in found.message


def test_a_generic_push_needs_no_more_than_a_repository() -> None:
    push = push_of("generic-hmac", {"repository": "git@host:flags"})
    assert (push.repositories, push.updates) == (("git@host:flags",), (Update(),))


def test_unsigned_body_is_not_parsed() -> None:
    body = b"{not json"
    assert read_delivery("github", (), body, [TOKEN]) == UNSIGNED


def test_a_body_may_be_so_large_and_no_larger() -> None:
    largest = body_of(GITHUB).ljust(MOST_BYTES)
    assert isinstance(deliver("github", largest), Push)
    found = deliver("github", largest + b" ")
    assert isinstance(found, Refusal)
    assert found.status == 413


def test_the_same_delivery_is_known_again_and_another_is_not() -> None:
    first = push_of("github", GITHUB)
    assert first.delivery == DELIVERY
    renamed = push_of("github", GITHUB, x_github_delivery="another")
    assert renamed.identity == first.identity, "the id is not signed: it makes no other delivery"
    assert push_of("github", {**GITHUB, "pusher": "b"}).identity != first.identity


def test_gitlabs_deliveries_differ_by_their_key() -> None:
    identities = {push_of("gitlab", GITLAB, idempotency_key=key).identity for key in "aab"}
    assert len(identities) == 2


@pytest.mark.parametrize("name", ["", "x" * 65, "a b", "a\nb"])
def test_an_odd_delivery_id_is_not_repeated(name: str) -> None:
    assert push_of("github", GITHUB, x_github_delivery=name).delivery == ""


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
names = st.sampled_from(
    [
        "ref", "after", "head_commit", "repository", "project", "release", "ref_type", "commit", "id",
        "checkout_sha", "clone_url", "url", "tag_name", "object_kind", "push", "changes", "new", "name",
        "resource", "refUpdates", "remoteUrl", "event_data", "resources", "resource_url", "tag", "digest",
        "docker_url", "updated_tags", "push_data", "repo_name", "links", "clone",
    ]
)  # fmt: skip
parts = st.dictionaries(names, values | st.lists(st.dictionaries(names, values, max_size=3)), max_size=3)
nested = st.dictionaries(names, values | parts, max_size=6)


@settings(max_examples=150)
@given(
    st.sampled_from(get_args(Sender)),
    nested.map(lambda each: json.dumps(each).encode()) | st.binary(max_size=80),
    st.sampled_from(["push", "ping", "Push Hook", "System Hook", "", "repo:push", "repo:refs_changed"])
    | st.text(max_size=9),
)
def test_whatever_is_authentic_is_read_or_refused_and_nothing_raised(
    sender: Sender, body: bytes, event: str
) -> None:
    found = deliver(sender, body, event=event)
    if isinstance(found, Push):
        assert found.repositories
        assert all(update.commit is None or len(update.commit) in {40, 64} for update in found.updates)
        assert found.updates
    else:
        assert isinstance(found, Quiet) or found.status == 400


A = "a" * 40
B = "b" * 40


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/acme/flags",
        "https://github.com/acme/flags.git",
        "https://github.com/acme/flags/",
        "https://GitHub.com/Acme/Flags.git/",
        "https://user@github.com:443/acme/flags",
        "ssh://git@github.com/acme/flags.git",
        "ssh://git@github.com:22/acme/flags",
        "ssh://git@ssh.github.com:443/acme/flags.git",
        "git@github.com:acme/flags.git",
        "github.com:/acme/flags",
        "git://github.com/acme/flags",
        "https://github.com./acme/flags",
        "https://github.com/acme/%66lags",
    ],
)
def test_one_repository_has_many_spellings(url: str) -> None:
    assert normalise_url(url) == "github.com/acme/flags"


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/acme/flags2",
        "https://github.com/acme",
        "https://github.com.evil.org/acme/flags",
        "https://evil.org/github.com/acme/flags",
        "https://evil.org/?https://github.com/acme/flags",
        "git@gitlab.com:acme/flags.git",
    ],
)
def test_another_repository_has_another_spelling(url: str) -> None:
    assert normalise_url(url) != "github.com/acme/flags"


@pytest.mark.parametrize("url", ["", "flags", "https://", "https://github.com", "https://[::1/x", "://x"])
def test_what_is_no_address_has_no_spelling(url: str) -> None:
    assert normalise_url(url) is None


@pytest.mark.parametrize(
    ("ref", "reference", "expected"),
    [
        pytest.param({}, "refs/heads/main", True, id="main by default"),
        pytest.param({}, "refs/heads/master", False, id="not master"),
        pytest.param({"branch": "x/y"}, "refs/heads/x/y", True, id="branch"),
        pytest.param({"branch": "main"}, "refs/tags/main", False, id="a tag is no branch"),
        pytest.param({"branch": "refs/heads/x"}, "refs/heads/x", True, id="branch by its full name"),
        pytest.param({"tag": "v1"}, "refs/tags/v1", True, id="tag"),
        pytest.param({"tag": "refs/tags/v1"}, "refs/tags/v1", True, id="tag by its full name"),
        pytest.param({"tag": "v1"}, "refs/heads/v1", False, id="a branch is no tag"),
        pytest.param({"semver": ">=1"}, "refs/tags/anything", True, id="semver"),
        pytest.param({"semver": ">=1"}, "refs/heads/main", False, id="semver and a branch"),
        pytest.param({"name": "refs/pull/4/head"}, "refs/pull/4/head", True, id="name"),
        pytest.param({"name": "refs/heads/x", "branch": "a"}, "refs/heads/a", False, id="name over branch"),
        pytest.param({"tag": "v1", "branch": "main"}, "refs/heads/main", False, id="tag over branch"),
        pytest.param({"tag": "v1", "semver": "*"}, "refs/tags/v2", False, id="tag over semver"),
        pytest.param({"commit": A, "branch": "x"}, "refs/heads/main", True, id="the pinned commit arrives"),
        pytest.param({"commit": B, "branch": "main"}, "refs/heads/main", False, id="another than the pinned"),
        pytest.param({"branch": "x"}, None, True, id="any reference may have changed"),
    ],
)  # fmt: skip
def test_a_source_is_woken_by_what_it_follows(
    ref: dict[str, str], reference: str | None, expected: bool
) -> None:
    assert follows(GitReference.model_validate(ref), Update(reference, A)) is expected


def test_a_repository_on_disk_is_known_by_its_path() -> None:
    assert normalise_url("file:///srv/flags.git") == normalise_url("file:///srv/flags")


@given(st.text(max_size=60) | st.from_regex(r"[a-z]{0,5}://[^\n]{0,30}", fullmatch=True))
def test_no_address_is_too_odd_to_be_compared(url: str) -> None:
    found = normalise_url(url)
    assert found is None or found.partition("/")[2]


BODY = b'{"ref": "refs/heads/main"}'
HUB = "x-hub-signature-256"


def digest(algorithm: str) -> str:
    return f"{algorithm}={hexdigest(BODY, algorithm=algorithm)}"


@pytest.mark.parametrize("sender", SENDERS)
def test_delivery_with_another_token_is_refused(sender: Sender) -> None:
    assert is_authentic(sender, headers_of(sender, BODY), BODY, [TOKEN])
    assert not is_authentic(sender, headers_of(sender, BODY, token=b"a guess"), BODY, [TOKEN])


@pytest.mark.parametrize("sender", SENDERS)
def test_while_a_token_is_changed_both_are_believed(sender: Sender) -> None:
    for token in (TOKEN, OLD):
        assert is_authentic(sender, headers_of(sender, BODY, token=token), BODY, [TOKEN, OLD])


@pytest.mark.parametrize("sender", SENDERS)
def test_without_a_token_no_sender_is_accepted(sender: Sender) -> None:
    assert not is_authentic(sender, headers_of(sender, BODY, token=b""), BODY, [b""])
    assert not is_authentic(sender, headers_of(sender, BODY), BODY, [])


@pytest.mark.parametrize("sender", SIGNERS)
def test_one_changed_byte_of_the_body_is_noticed(sender: Sender) -> None:
    assert not is_authentic(sender, headers_of(sender, BODY), BODY.replace(b"main", b"evil"), [TOKEN])


@pytest.mark.parametrize(
    ("sender", "headers", "believed"),
    [
        pytest.param("github", {HUB: "sha256=" + hexdigest(BODY).upper()}, True, id="capitals"),
        pytest.param("github", {"x-hub-signature": digest("sha1")}, False, id="sha1"),
        pytest.param("github", {HUB: hexdigest(BODY)}, False, id="no algorithm"),
        pytest.param("github", {HUB: digest("sha512")}, False, id="not GitHub's algorithm"),
        pytest.param("github", {HUB: "sha256="}, False, id="no digits"),
        pytest.param("github", {HUB: "sha256=\xe9"}, False, id="no hexadecimal digits"),
        pytest.param("github", {}, False, id="no header"),
        pytest.param("gitea", {HUB: digest("sha256")}, True, id="gitea in GitHub's way"),
        pytest.param("gitea", {"x-gitea-signature": "", HUB: digest("sha256")}, False, id="gitea's own"),
        pytest.param("generic-hmac", {"x-signature": digest("sha512")}, True, id="sha512"),
        pytest.param("generic-hmac", {"x-signature": digest("sha1")}, False, id="generic sha1"),
        pytest.param("generic-hmac", {"x-signature": digest("md5")}, False, id="md5"),
        pytest.param("gitlab", {}, False, id="gitlab without a token"),
        pytest.param("gitlab", {"x-gitlab-token": f"{TOKEN.decode()} "}, False, id="gitlab with one more"),
    ],
)
def test_a_signature_is_read_as_its_sender_writes_it(
    sender: Sender, headers: dict[str, str], believed: bool
) -> None:
    assert is_authentic(sender, tuple(headers.items()), BODY, [TOKEN]) is believed


def test_a_gitlab_token_may_have_any_letters() -> None:
    token = "schlüssel-ж".encode()
    assert is_authentic("gitlab", (("x-gitlab-token", token.decode("latin-1")),), BODY, [token])


@settings(max_examples=60)
@given(
    st.sampled_from(SENDERS),
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "x-signature",
                    "x-hub-signature-256",
                    "x-hub-signature",
                    "x-gitea-signature",
                    "x-gitlab-token",
                    "authorization",
                ]
            ),
            st.text(max_size=80) | st.just("sha256=") | st.just("sha256=" + "0" * 64),
        ),
        max_size=4,
    ),
    st.binary(max_size=60),
)
def test_forged_fields_are_ignored(sender: Sender, headers: list[tuple[str, str]], body: bytes) -> None:
    assert not is_authentic(sender, tuple(headers), body, [TOKEN, OLD])
