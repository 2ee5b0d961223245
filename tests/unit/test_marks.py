"""Labels and annotations of ours, which whoever writes an object may write: what proves each that we read."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
WRITER: Final = "an owner reference or field manager"
REQUEST: Final = "nothing: it asks for what the object's writer may ask for, about that object alone"
SHOWN: Final = "nothing: it is only shown, or compared"
NEVER_READ: Final = "it is written and not read as a mark of an object"
CONTENT: Final = "nothing: metadata of flags or artifacts, of whoever writes these"
POD: Final = "admission: it judges what a pod asks for as the pod is created"
MARKED_POD: Final = "nothing: whoever runs pods of the namespace may have of it what an injected pod has"
PROOF: Final = {
    WRITER: "flagset direct-set",
    REQUEST: "accept-revision resume test-alert compared-with upgrade"
    " rollout-abort rollout-approve rollout-pause rollout-promote rollout-resume rollout-retry"
    " restarted-at restarted-for direct-set-applied",
    SHOWN: "set-by observed-at workload-generation"
    " openfeature.dev/operator-remarks openfeature.dev/allowkubernetessync",
    NEVER_READ: "leader flagsource authorities",
    CONTENT: "author committed-at subject verified-by signed-at link page changes differences"
    " revision digest bucketing held-from left-out secret stale stale-since flag-set flag-sets provider"
    " provider-version rollout-step rollout-share rollout-candidate rollout-arm"
    " override override-reason override-expires override-hides override-beneath prerequisites",
    POD: "containers image resources log-level sidecar port management-port sync-port ofrep-port"
    " on-missing-flags start-deadline socket-path state-claim evaluator"
    " openfeature.dev/enabled openfeature.dev/transport openfeature.dev/flags"
    " openfeature.dev/featureflagsource openfeature.dev/inprocessconfiguration"
    " openfeature.dev/flagsourceconfiguration openfeature.dev/featureflagconfiguration"
    " openfeature.dev/standing-orders openfeature.dev/standing-orders-namespace",
    MARKED_POD: "injected orders proxied flag-files flag-reader flags-changed",
    "nothing: the label only keeps a FlagShard from removal": "rollout",
    "nothing: the finalizer only keeps the FlagSet from removal": "remote-objects",
    "nothing: it only narrows to which hosts the Secret is sent": "allowed-hosts",
    "the OpenFeature Operator's ConfigMap of that name, which its writer so hands over": (
        "openfeature.dev/featureflag"
    ),
}
"""The marks, of flagstaff.dev unless they name another domain, by what proves them."""
MARK: Final = re.compile(r"(?:flagstaff|openfeature)\.dev/(?!v\d)[a-z-]+")
OWN: Final = frozenset({"LABEL", "DIRECT_SET"})
"""The constants that name the labels by which objects are known to be ours."""
READERS: Final = {
    "controller/api/flagset.py proven_writer": WRITER,
    "controller/configurations/remote_providers.py sweep": "it only keeps the object from removal",
    "controller/flagsets/stage.py _label_of": "it only wakes the FlagSet whose target the object is",
    "controller/pods/marked_workloads.py is_set_of": WRITER,
    "controller/pods/marked_workloads.py _other_maker": "it only names who has a name already",
    "controller/pods/set_writer.py run": "`is_set_of` judges each before it is touched",
    "controller/pods/set_writer.py _delete": "`is_set_of` has judged it",
    "controller/proxy/recording.py _manifest": "it is only left out of what is written",
}
"""What proves these labels where they are read, by module and function."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for package in ("controller", "evaluator"):
        for file in sorted((ROOT / package).rglob("*.py")):
            yield file.relative_to(ROOT).as_posix(), ast.parse(file.read_text(encoding="utf-8"))


def marks() -> Iterator[str]:
    for _, tree in modules():
        for node in ast.walk(tree):
            match node:
                case ast.Constant(value=str(text)) if MARK.fullmatch(text):
                    yield text.removeprefix("flagstaff.dev/")


def readers() -> Iterator[str]:
    """Each module and function that reads an object's label by one of the constants."""
    for name, tree in modules():
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                map(reads, ast.walk(function))
            ):
                yield f"{name} {function.name}"


def reads(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=labels, attr="get"), args=[mark, *_]):
            return is_labels(labels) and is_mark(mark)
        case ast.Subscript(value=labels, slice=mark):
            return is_labels(labels) and is_mark(mark)
        case ast.Compare(left=left, comparators=[right]):
            return (is_mark(left) and is_labels(right)) or (is_mark(right) and isinstance(left, ast.Name))
    return False


def is_labels(node: ast.AST) -> bool:
    return "labels" in ast.unparse(node)


def is_mark(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in OWN
        case ast.Set(elts=names):
            return any(map(is_mark, names))
    return False


def test_each_mark_has_a_proof() -> None:
    listed = [mark for group in PROOF.values() for mark in group.split()]
    assert sorted(listed) == sorted(set(marks()))


def test_labels_that_say_who_wrote_an_object_are_proven_where_they_are_read() -> None:
    assert set(readers()) == READERS.keys()
