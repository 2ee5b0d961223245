"""What `flagstaff rollout status`, `describe`, `get` and `tree` say of a FlagRollout."""

from __future__ import annotations

from typing import Any

from controller.api.objects.meta import Resource
from controller.cli.objects.description import describe_object
from controller.cli.objects.object_rows import columns_of, object_row
from controller.cli.objects.object_tree import object_tree
from controller.cli.rollouts.rollout_view import RolloutView, as_text, duration_text, view_of
from controller.cli.shared.output import plain, table

DIGEST = "sha256:" + "a" * 64
SPEC: dict[str, Any] = {
    "flagSetRef": {"name": "checkout-production"},
    "flags": ["new-*"],
    "steps": [
        {"audience": {"var": "beta"}},
        {"share": 1, "minDuration": "10m", "minSamples": 500},
        {"share": 50, "minDuration": "1h30m", "approval": "Required"},
    ],
    "analysis": {"failureLimit": 3},
}
STATUS: dict[str, Any] = {
    "phase": "Progressing",
    "verdict": "Fail",
    "step": 1,
    "stepText": "2/3",
    "share": 1.0,
    "shareText": "1%",
    "propagatedAt": "2026-11-30T08:00:00Z",
    "candidate": {
        "digest": DIGEST,
        "revision": "main@sha1:" + "b" * 40,
        "author": "Ada",
        "flags": ["new-cart", "new-checkout"],
        "count": 3,
    },
    "promoted": {"digest": DIGEST, "revision": "main@sha1:" + "c" * 40},
    "served": {"served": 3, "total": 3},
    "checks": {"failed": 1},
    "metrics": [
        {
            "name": "errors",
            "verdict": "Fail",
            "value": 0.0212,
            "threshold": "at most 0.01",
            "samples": 612,
            "query": 'sum(rate(errors{flag="new-cart"}[5m]))',
            "at": "2026-11-30T08:05:00Z",
        }
    ],
    "history": [
        {
            "digest": DIGEST,
            "outcome": "RolledBack",
            "reason": "errors failed",
            "endedAt": "2026-11-29T08:00:00Z",
        }
    ],
    "conditions": [{"type": "Ready", "status": "Unknown", "reason": "Progressing", "message": "step 2/3"}],
}  # fmt: skip


def rollout(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None) -> Resource:
    body = {"spec": SPEC if spec is None else spec, "status": STATUS if status is None else status}
    return Resource.of({"kind": "FlagRollout", "metadata": {"namespace": "shop", "name": "checkout"}, **body})


def test_status_tells_step_share_checks_and_what_was_before() -> None:
    assert as_text(view_of(rollout())).splitlines() == [
        "FlagRollout shop/checkout",
        "  Set:       checkout-production",
        "  Phase:     Progressing, step 2/3, 1% of users",
        "  Candidate: main@sha1:bbbbbbbbbbbb by Ada: new-cart, new-checkout and 1 more",
        "  Promoted:  main@sha1:cccccccccccc",
        "  Served:    3/3 since 2026-11-30T08:00:00Z",
        "  Failed:    1 of at most 3 checks",
        "  Status:    step 2/3",
        "",
        "STEP  USERS     LASTS  SAMPLES  APPROVAL  STATE",
        "1/3   audience  -      -        -         done",
        "2/3   1%        10m    500      -         now, until 2026-11-30T08:10:00Z at least",
        "3/3   50%       1h30m  -        required",
        "",
        "CHECK   VERDICT  VALUE   GOOD          SAMPLES  AT                    MESSAGE",
        "errors  Fail     0.0212  at most 0.01  612      2026-11-30T08:05:00Z  -",
        "",
        "EARLIER              OUTCOME     ENDED                 REASON",
        "sha256:aaaaaaaaaaaa  RolledBack  2026-11-29T08:00:00Z  errors failed",
    ]


def test_a_rollout_that_nobody_reconciled_is_shown_by_its_spec() -> None:
    view = view_of(rollout(status={}))
    assert (view.phase, view.step, [step.state for step in view.steps]) == ("Unknown", None, ["", "", ""])


def test_malformed_objects_are_shown() -> None:
    view = view_of(
        rollout({"steps": 1}, {"phase": "Dancing", "propagatedAt": 7, "metrics": [{}], "step": "x"})
    )
    assert (view.phase, view.steps, view.metrics, view.flag_set) == ("Unknown", (), (), "-")
    assert as_text(view).startswith("FlagRollout shop/checkout\n")
    late = {**STATUS, "propagatedAt": "9999-12-31T23:59:59Z"}
    assert view_of(rollout(status=late)).steps[1].until is None


def test_the_record_for_programs_has_what_the_lines_say() -> None:
    [record] = plain([view_of(rollout())], RolloutView)
    assert record["flagSet"] == "checkout-production"
    assert record["steps"][1] == {
        "number": "2/3", "users": "1%", "lasts": "10m", "samples": 500, "approval": False, "state": "now",
        "until": "2026-11-30T08:10:00Z",
    }  # fmt: skip
    assert record["metrics"][0]["query"] == 'sum(rate(errors{flag="new-cart"}[5m]))'


def test_a_row_has_set_phase_step_share_and_verdict() -> None:
    heading, line = table(columns_of("FlagRollout", namespaced=False), [object_row(rollout())]).splitlines()
    assert heading.split() == [
        "NAME",
        "SET",
        "PHASE",
        "STEP",
        "SHARE",
        "VERDICT",
        "READY",
        "SUSPENDED",
        "STATUS",
    ]
    assert line.split()[:6] == ["checkout", "checkout-production", "Progressing", "2/3", "1%", "Fail"]


def test_describe_tells_each_check_with_its_query() -> None:
    text = describe_object(rollout(), [])
    assert "Phase:       Progressing\n" in text
    assert 'Queries:\n  errors: sum(rate(errors{flag="new-cart"}[5m]))\n' in text
    assert "Earlier rollouts:\n" in text


def test_the_tree_has_a_rollout_below_its_flag_set() -> None:
    named = {"namespace": "shop", "name": "checkout-production"}
    flag_set = Resource.of({"kind": "FlagSet", "metadata": named})
    [root] = object_tree([flag_set, rollout()])
    assert [(child.kind, child.state) for child in root.children] == [
        ("FlagRollout", "Progressing, step 2/3, 1%")
    ]


def test_the_tree_says_of_a_flag_set_that_what_it_depends_on_is_being_rolled_out() -> None:
    condition = {
        "type": "DependenciesServed", "status": "False", "reason": "DependencyRollout",
        "message": "FlagSet base is applied, but not served to all users: FlagRollout slow rolls it out",
    }  # fmt: skip
    named = {"namespace": "shop", "name": "checkout"}
    [root] = object_tree(
        [Resource.of({"kind": "FlagSet", "metadata": named, "status": {"conditions": [condition]}})]
    )
    assert root.state == condition["message"]


def test_durations_are_written_as_in_a_spec() -> None:
    texts = [duration_text(seconds) for seconds in (0, 30, 90, 3_600, 5_400, 90_000)]
    assert texts == ["0s", "30s", "1m30s", "1h", "1h30m", "25h"]
