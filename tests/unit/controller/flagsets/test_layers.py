from __future__ import annotations

import pytest

from controller.flagsets.layers import PathRefused, fixed_prefix, select

TREE = [
    "README.md", "root.json", ".hidden.json", ".ci/jobs.yaml", "flags/b.yaml", "flags/a.json", "flags/c.yml",
    "flags/notes.txt", "flags/.draft.json", "flags/deep/er/d.json", "flags/odd[1].json",
    "overlays/production/p.json", "overlays/staging/s.json", "empty/README.md",
]  # fmt: skip
IN_FLAGS = ["flags/a.json", "flags/b.yaml", "flags/c.yml", "flags/odd[1].json"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("flags/a.json", ["flags/a.json"]),
        ("./flags//a.json", ["flags/a.json"]),
        ("flags/notes.txt", ["flags/notes.txt"]),
        ("flags/odd[1].json", ["flags/odd[1].json"]),
        (".hidden.json", [".hidden.json"]),
        ("flags", IN_FLAGS),
        ("./flags/", IN_FLAGS),
        ("flags/**", sorted([*IN_FLAGS, "flags/deep/er/d.json"])),
        (".", ["root.json"]),
        ("", ["root.json"]),
        (".ci", [".ci/jobs.yaml"]),
        ("overlays/**", ["overlays/production/p.json", "overlays/staging/s.json"]),
        ("flags/*.json", ["flags/a.json", "flags/odd[1].json"]),
        ("flags/?.y*", ["flags/b.yaml", "flags/c.yml"]),
        ("flags/*", IN_FLAGS),
        ("flags/.*", ["flags/.draft.json"]),
        ("**/d.json", ["flags/deep/er/d.json"]),
        ("flags/**/d.json", ["flags/deep/er/d.json"]),
        ("**/a.json", ["flags/a.json"]),
        ("**/jobs.yaml", None),
        ("overlays/*/*.json", ["overlays/production/p.json", "overlays/staging/s.json"]),
        ("overlays/[p]*/**", ["overlays/production/p.json"]),
        ("*.json", ["root.json"]),
    ],
)
def test_a_path_means_these_files(path: str, meant: list[str] | None) -> None:
    if meant is None:
        with pytest.raises(PathRefused):
            select(TREE, path)
    else:
        assert select(TREE, path) == meant


def test_everything_is_every_definition_that_is_not_hidden() -> None:
    assert select(TREE, "**") == sorted(
        name for name in TREE if name.endswith(("n", "l")) and "/." not in f"/{name}"
    )


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("flgs", "did you mean flags or "),
        ("flags/a.jsn", "flags/a.json"),
        ("overlay/production", "overlays/production"),
        ("overlays", "overlays/production has some, and a path that ends in /** means all below"),
        ("empty", "no *.json, *.yaml or *.yml of its own"),
        ("*.toml", "*.toml: no such file or folder"),
    ],
)
def test_a_path_that_means_nothing_is_named_with_what_is_near(path: str, said: str) -> None:
    with pytest.raises(PathRefused) as refusal:
        select(TREE, path)
    assert refusal.value.reason == "PathNotFound"
    assert said in refusal.value.message


@pytest.mark.parametrize("path", ["../flags", "flags/../../x", "/flags", "a/..", "fl\0ags"])
def test_a_path_that_leaves_the_tree_is_refused(path: str) -> None:
    with pytest.raises(PathRefused) as refusal:
        select(TREE, path)
    assert refusal.value.reason == "PathInvalid"


@pytest.mark.parametrize(
    ("names", "said"),
    [([], "the folder is empty"), ([".git/HEAD"], "the folder is empty"), (["README.md"], "of its own")],
)
def test_a_tree_without_definitions_says_so(names: list[str], said: str) -> None:
    with pytest.raises(PathRefused, match=said):
        select(names, ".")


@pytest.mark.parametrize(
    ("path", "prefix"),
    [
        ("flags/*.json", "flags"), ("flags/**", "flags"), ("flags", "flags"), ("*.json", "."),
        ("/srv/flags/*.json", "/srv/flags"), ("/*.json", "/"), ("../flags/[ab]/c", "../flags"),
    ],
)  # fmt: skip
def test_the_fixed_prefix_ends_before_the_first_sign_of_a_glob(path: str, prefix: str) -> None:
    assert fixed_prefix(path) == prefix
