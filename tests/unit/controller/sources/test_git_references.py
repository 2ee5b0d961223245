from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api.parsing import InvalidTextError
from controller.runtime.setbacks import Failed, Setback, Stalled, Waiting
from controller.sources.backend import Revision
from controller.sources.git_references import KINDS, Reference, choose

OIDS = [f"{number:040x}" for number in range(1, 20)]
A, B, C = OIDS[:3]

# The tags of Flux's own suite, so that its users' ranges choose here what they chose there.
FLUX = ["non-semver-tag", "v0.1.0", "0.2.0", "v0.2.1", "v1.0.0-alpha", "v1.1.0", "v2.0.0"]


def tags(*names: str) -> dict[str, str]:
    return {f"refs/tags/{name}": oid for name, oid in zip(names, OIDS, strict=False)}


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        (None, Reference()),
        ("main", Reference(branch="main")),
        ("feature/x", Reference(branch="feature/x")),
        ("branch:main", Reference(branch="main")),
        ("tag:v1", Reference(tag="v1")),
        ("HEAD", Reference()),
        ("refs/heads/feature/x", Reference(branch="feature/x")),
        ("branch: refs/heads/main", Reference(branch="main")),
        ("refs/tags/v1", Reference(tag="v1")),
        ("tag:refs/tags/v1", Reference(tag="v1")),
        ("name: refs/heads/main", Reference(name="refs/heads/main")),
        ("semver:>=1.0 <2", Reference(semver=">=1.0 <2")),
        ("name:refs/pull/420/head", Reference(name="refs/pull/420/head")),
        (f"commit:{A.upper()}", Reference(commit=A)),
    ],
)
def test_a_reference_is_read_as_people_write_it(text: str | None, reference: Reference) -> None:
    assert Reference.parse(text) == reference


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("head:main", "'head' is not a kind of reference; write one of branch:…, tag:…"),
        ("", "the reference is empty; name a branch, or leave it out"),
        ("HEAD~1", "'~1' counts from another commit.*this prints: git rev-parse 'HEAD~1'"),
        ("main^", "git rev-parse 'main\\^'"),
        ("@", "git rev-parse '@'"),
        (f"main@sha1:{A}", f"is a revision; write commit:{A}"),
        (f"sha1:{A}", f"is a revision; write commit:{A}"),
        ("branch:", "not a valid branch name"),
        ("--upload-pack=touch x", "not a valid branch name"),
        ("tag:-x", "not a valid tag name"),
        ("branch:a..b", "not a valid branch name"),
        ("branch:a b", "not a valid branch name"),
        ("branch:a\nb", "not a valid branch name"),
        ("branch:+a:b", "not a valid branch name"),
        ("branch:a*", "not a valid branch name"),
        ("branch:a.lock", "not a valid branch name"),
        ("name:main", "must start with refs/"),
        ("name:refs/heads/x/", "not a valid reference name"),
        ("refs/pull/1/head", "write it as name: refs/pull/1/head"),
        ("branch:refs/tags/v1", "'refs/tags/v1' is not the name of a branch; write it as tag: v1"),
        ("tag:refs/heads/main", "write it as branch: main"),
        ("refs/heads/", "not a valid branch name"),
        ("commit:abcdef1", "this prints: git rev-parse abcdef1"),
        (f"commit:{'ab' * 32}", "it is one of SHA-256"),
        ("commit:abc", "40 hexadecimal digits"),
        ("commit:HEAD", "'HEAD' is not a commit id"),
        (f"commit:{A}0", "40 hexadecimal digits"),
        ("semver:main", "not a version range"),
        ("semver:>=1.0 &&", "not a version range"),
    ],
)
def test_what_can_name_nothing_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidTextError, match=says) as refused:
        Reference.parse(text)
    assert refused.value.reason == "InvalidReference"


@settings(max_examples=200)
@given(st.sampled_from(["", *(f"{kind}:" for kind in KINDS)]), st.text(max_size=30))
def test_any_text_is_a_reference_or_refused(kind: str, text: str) -> None:
    try:
        reference = Reference.parse(kind + text)
    except InvalidTextError:
        return
    named = reference.branch or reference.tag or reference.name or ""
    assert not named.startswith("-")
    assert not any(character in named for character in ":*\n ")


def test_without_a_reference_the_head_branch_is_chosen() -> None:
    refs = {"refs/heads/dev": A, "refs/heads/trunk": B}
    assert choose(refs, "refs/heads/trunk", Reference()) == Revision("trunk", f"sha1:{B}")


def test_a_detached_head_is_a_bare_commit() -> None:
    assert str(choose({"HEAD": A, "refs/heads/x": B}, None, Reference())) == f"sha1:{A}"


@pytest.mark.parametrize(
    ("head", "says"),
    [
        ("refs/heads/main", "HEAD points to 'refs/heads/main', which does not exist"),
        (None, "HEAD points to no branch; name a branch; branches: dev"),
    ],
)
def test_a_head_that_leads_nowhere_fails_and_lists_branches(head: str | None, says: str) -> None:
    with pytest.raises(Failed, match=says):
        choose({"refs/heads/dev": A}, head, Reference())


@pytest.mark.parametrize(
    ("semver", "tag"),
    [
        ("*", "v2.0.0"), ("<v0.2.1", "0.2.0"), (">=1.0.0-0 <1.1.0-0", "v1.0.0-alpha"),
        (">=1.0, <2", "v1.1.0"), (">= 0.1 < 0.3", "v0.2.1"), ("1.x", "v1.1.0"), ("^0.2", "v0.2.1"),
        ("~1.0.0-alpha", "v1.0.0-alpha"), ("0.1.0 - 0.2.0", "0.2.0"),
    ],
)  # fmt: skip
def test_the_highest_version_in_the_range_is_chosen(semver: str, tag: str) -> None:
    assert choose(tags(*FLUX), None, Reference(semver=semver)).name == tag


@pytest.mark.parametrize("semver", [">=3", "1.0.x", "<0.1.0"])
def test_a_range_without_a_tag_fails_and_lists_tags(semver: str) -> None:
    with pytest.raises(Failed, match=r"no tag matches the version range .*; tags: 0\.2\.0, non-semver-tag"):
        choose(tags(*FLUX), None, Reference(semver=semver))


def test_tags_of_one_version_are_ordered_by_name() -> None:
    assert choose(tags("1.0.0", "v1.0.0"), None, Reference(semver="1")).name == "v1.0.0"


@pytest.mark.parametrize(
    ("reference", "revision"),
    [
        (Reference(branch="b", tag="t", semver="1", name="refs/x/y", commit=C), f"b@sha1:{C}"),
        (Reference(branch="b", tag="t", semver="1", name="refs/x/y"), f"refs/x/y@sha1:{A}"),
        (Reference(branch="b", tag="t", semver="1"), f"t@sha1:{B}"),
        (Reference(branch="b", semver="1"), f"1.0.0@sha1:{C}"),
        (Reference(branch="b"), f"b@sha1:{OIDS[3]}"),
    ],
)
def test_of_several_fields_fluxs_order_decides(reference: Reference, revision: str) -> None:
    names = ("refs/x/y", "refs/tags/t", "refs/tags/1.0.0", "refs/heads/b")
    assert str(choose(dict(zip(names, OIDS, strict=False)), None, reference)) == revision


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("mian", "no branch 'mian'; did you mean 'main'\\? branches: dev, main"),
        ("v1", "there is a tag of that name: write tag:v1"),
        ("tag:dev", "there is a branch of that name: write branch:dev"),
        (A, f"for a commit write commit:{A}"),
        ("abcdef0", "for a commit write commit: and its 40 digits, as printed by: git rev-parse abcdef0"),
        ("origin/main", r"did you mean 'main'\? branches: dev, main"),
        ("MAIN", r"did you mean 'main'\?"),
        ("tags/v1", "no branch 'tags/v1'; .*; write refs/tags/v1"),
        ("heads/dev", r"did you mean 'dev'\?"),
        ("name:refs/heads/mian", "did you mean 'refs/heads/main'"),
        ("tag:v3", "no tag 'v3'; tags: v1"),
    ],
)
def test_what_is_missing_fails_and_names_what_is_near(reference: str, says: str) -> None:
    refs = {"refs/heads/main": A, "refs/heads/dev": B, "refs/tags/v1": C}
    with pytest.raises(Failed, match=says) as setback:
        choose(refs, "refs/heads/main", Reference.parse(reference))
    assert setback.value.reason == "ReferenceNotFound"


@pytest.mark.parametrize("name", ["abab", "ABABAB", "ab" * 19])
def test_the_short_id_of_a_listed_commit_is_completed(name: str) -> None:
    with pytest.raises(Failed, match=f"for a commit write commit:{'ab' * 20}$"):
        choose({"refs/heads/main": "ab" * 20}, None, Reference.parse(name))


def test_a_long_list_of_names_is_cut() -> None:
    refs = {f"refs/heads/b{number:03}": A for number in range(500)}
    with pytest.raises(Failed, match="b009 and 490 more"):
        choose(refs, None, Reference(branch="zzz"))


def test_an_empty_repository_is_waited_for() -> None:
    with pytest.raises(Waiting) as setback:
        choose({}, "refs/heads/main", Reference())
    assert setback.value.reason == "EmptyRepository"


def test_a_repository_with_sha256_ids_stalls() -> None:
    with pytest.raises(Stalled, match="SHA-1"):
        choose({"refs/heads/main": "a" * 64}, "refs/heads/main", Reference())


@pytest.mark.parametrize(
    ("reference", "name", "full"),
    [
        ("main", "main", "refs/heads/main"),
        (None, "main", "refs/heads/main"),
        (None, "", "HEAD"),
        ("tag:v1", "v1", "refs/tags/v1"),
        ("semver:1", "v1.2.0", "refs/tags/v1.2.0"),
        ("name:refs/pull/1/head", "refs/pull/1/head", "refs/pull/1/head"),
        (f"commit:{A}", "", None),
    ],
)
def test_a_revision_has_a_name_that_the_remote_knows(
    reference: str | None, name: str, full: str | None
) -> None:
    assert Reference.parse(reference).full_name(Revision(name, f"sha1:{A}")) == full


names = st.from_regex(r"refs/(heads|tags|pull)/[a-z0-9.v-]{1,8}", fullmatch=True)


@settings(max_examples=200)
@given(st.dictionaries(names, st.sampled_from(OIDS), max_size=8), st.data())
def test_a_choice_is_always_one_of_the_references(refs: dict[str, str], data: st.DataObject) -> None:
    kinds = ["a", "tag:v1", "semver:*", "name:refs/heads/a", None]
    try:
        revision = choose(refs, "refs/heads/a", Reference.parse(data.draw(st.sampled_from(kinds))))
    except Setback:
        return
    assert revision.digest.removeprefix("sha1:") in refs.values()
