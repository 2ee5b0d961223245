"""`flagstaff init`: writes a repository to start from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from controller.api.parsing import OBJECT_NAME
from controller.cli.printing import OK, PROBLEM, USAGE, Exit, exit_on

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping


_ENVIRONMENTS: Final = ("staging", "production")
_BASE: Final = """\
# yaml-language-server: $schema=../../schemas/layer.json
# Every flag, with the values that hold wherever an overlay does not change them.
flags:
  new-banner:
    state: ENABLED
    variants: {"on": true, "off": false}
    defaultVariant: "off"
    targeting:
      if:
        - {$ref: is-colleague}
        - "on"
        - fractional: [["on", 10], ["off", 90]]

  banner-text:
    state: ENABLED
    variants: {plain: Welcome, party: Hooray}
    defaultVariant: plain

$evaluators:
  is-colleague:
    ends_with: [{var: email}, "@example.com"]
"""
_OVERLAYS: Final = {
    "staging": """\
# Everybody sees what is new.
flags:
  new-banner:
    defaultVariant: "on"
    targeting: {}
""",
    "production": """\
# What differs from base.
flags:
  banner-text:
    defaultVariant: plain
""",
}
_OVERLAY_HEAD: Final = "# yaml-language-server: $schema=../../../schemas/layer.json\n"
_SOURCE: Final = """\
# yaml-language-server: $schema=../schemas/kinds.json
apiVersion: flagstaff.dev/v1beta1
kind: FlagSource
metadata:
  name: {name}
spec:
  interval: 1m
  git:
    url: {url}
    ref: {{branch: main}}
"""
_FLAG_SET: Final = """\
---
# yaml-language-server: $schema=../schemas/kinds.json
apiVersion: flagstaff.dev/v1beta1
kind: FlagSet
metadata:
  name: {name}-{environment}
spec:
  sourceRef: {{kind: FlagSource, name: {name}}}
  paths: [flags/base, flags/overlays/{environment}]
"""
_README: Final = """\
# Flags of {name}

`flags/base` defines every flag, and `flags/overlays/ENVIRONMENT` changes some of them. Try them:

    flagstaff lint --path flags/base --path flags/overlays/production
    flagstaff up . --worktree --path flags/base --path flags/overlays/staging
    flagstaff diff --path flags/base --path flags/overlays/production

`clusters/{name}.yaml` has a cluster follow this repository:

    flagstaff lint -f clusters
    kubectl apply -n {name} -f clusters/{name}.yaml
    flagstaff get all -n {name}

`schemas` is for editors; `flagstaff schema layer > schemas/layer.json` makes it anew.
"""


def starter_files(name: str, url: str, schemas: Mapping[str, Any]) -> dict[str, str]:
    """The content of each file by its path; `schemas` has `layer` and `kinds`."""
    sets = "".join(_FLAG_SET.format(name=name, environment=environment) for environment in _ENVIRONMENTS)
    overlays = {
        f"flags/overlays/{environment}/flags.yaml": f"{_OVERLAY_HEAD}{_OVERLAYS[environment]}"
        for environment in _ENVIRONMENTS
    }
    written = {
        f"schemas/{schema}.json": json.dumps(schemas[schema], indent=2, ensure_ascii=False) + "\n"
        for schema in ("layer", "kinds")
    }
    return {
        "README.md": _README.format(name=name),
        "flags/base/flags.yaml": _BASE,
        **overlays,
        f"clusters/{name}.yaml": _SOURCE.format(name=name, url=url) + sets,
        **written,
    }


def configure_init(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "folder", metavar="DIR", nargs="?", type=Path, default=Path(), help="where (default: here)"
    )
    parser.add_argument("--name", default="shop", metavar="NAME", help="the application (default shop)")
    parser.add_argument(
        "--url", default="https://git.example.com/shop/flags.git", metavar="URL",
        help="the URL under which a cluster will find the repository",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 written; 1 a file is there already; 2 wrong usage."""
    # Imported here: it takes a second.
    from controller.cli.json_schemas import json_schemas

    if not OBJECT_NAME.fullmatch(options.name):
        raise Exit(f"--name {options.name!r}: use lower-case letters, digits and -", USAGE)
    files = starter_files(options.name, options.url, json_schemas())
    there = [name for name in files if (options.folder / name).exists()]
    if there:
        raise Exit(f"{options.folder / there[0]} is there already; nothing was written", PROBLEM)
    with exit_on(USAGE, OSError):
        for name, content in files.items():
            file = options.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
            print(file)
    return OK
