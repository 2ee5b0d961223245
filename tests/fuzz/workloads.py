"""Workloads that carry flags, as any client of the webhook may send them: refused, or marked."""

from __future__ import annotations

import json
from typing import Any, Final

from controller.pods.carried_flags import (
    KINDS,
    WorkloadAuthor,
    carried_flags,
    mark,
    read_flags,
    unmark,
    write_remark,
)
from controller.pods.installation import PodRefused
from tests.fuzz.target import Target, Wrong, same
from tests.worlds.pods import apply_patch

WORDS: Final = (
    '"kind":"Deployment"', '"kind":"CronJob"', '"kind":"Job"', '"metadata":{"name":"a"}', '"labels":{',
    '"annotations":{"openfeature.dev/flags":"{}"}', '"spec":{"template":{"metadata":{', "flags:\\n  a: {",
    '"jobTemplate":{"spec":{"template":', '"managedFields":[{"operation":"Apply","fieldsV1":{',
    '"flagstaff.dev/direct-set-applied":"{\\"by\\":1,\\"added\\":2}"', '"openfeature.dev/enabled":"true"',
    '"ownerReferences":[{"kind":"CronJob"}]', "null", "[]", "0",
)  # fmt: skip
BY: Final = WorkloadAuthor("fuzz", "2026-01-01T00:00:00Z")


def workload(content: bytes) -> None:
    """A workload is refused with words for its author, or marked, and once marked stays as it is."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return
    if not (isinstance(body, dict) and body.get("kind") in KINDS):
        return
    for part in ("metadata", "spec"):
        if not isinstance(body.get(part), dict):
            return
    try:
        carried = carried_flags(body)
    except PodRefused as refusal:
        check_words(refusal)
        return
    if carried is None:
        changes = unmark(body, body)
        same(apply_patch(body, changes.patch), changes.after, "the patch")
        return
    marked = after_mark(body, None)
    same(after_mark(marked, marked), marked, "marked again")
    try:
        read_flags(carried.text, carried.where)
    except PodRefused as refusal:
        check_words(refusal)


def after_mark(body: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """The workload afterwards, by its patch."""
    carried = carried_flags(body)
    if carried is None:
        raise Wrong("its flags are gone")
    changes = mark(body, before, carried, BY)
    write_remark(changes, carried)
    after = apply_patch(body, changes.patch)
    same(after, changes.after, "the patch")
    return after


def check_words(refusal: PodRefused) -> None:
    """It has words."""
    if not str(refusal):
        raise Wrong("refused without a word")


TARGETS = {"workload": Target(workload, WORDS, 4_096)}
