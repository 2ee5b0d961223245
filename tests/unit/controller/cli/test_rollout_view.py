"""What `flagstaff rollout status`, `describe`, `get` and `tree` say of a FlagRollout."""

from __future__ import annotations

from typing import Any

from controller.api.meta import Resource
from controller.cli.description import describe_object
from controller.cli.object_rows import columns_of, object_row
from controller.cli.object_tree import object_tree
from controller.cli.output import plain, table
from controller.cli.rollout_view import RolloutRecord, as_record, as_text
from controller.delivery.rollout_state import rollout_state
from controller.delivery.set_reading import by_member, read_sets
from tests.worlds.delivery import (
    AT_STEP,
    FIRST,
    MIXED,
    NOW,
    OLD,
    OWN_NEW,
    SECOND,
    candidate,
    entry,
    flag_set,
    override,
    rollout,
    set_object,
)

CHECK = {
    "name": "errors", "verdict": "Fail", "value": 0.0212, "threshold": "at most 0.01", "samples": 612,
    "query": 'sum(rate(errors{flag="new-cart"}[5m]))', "at": "2026-11-30T08:05:00Z",
}  # fmt: skip
FIRST_STEP = candidate(
    "Progressing", FIRST, "banner", **AT_STEP, verdict="Fail", propagatedAt="2026-11-30T08:00:00Z",
    served={"served": 3, "total": 3}, checks={"failed": 1}, metrics=[CHECK], reason="WaitingForApproval",
    heldSince="2026-11-30T08:10:00Z",
)  # fmt: skip
ENDED = {
    "digest": SECOND, "revision": OLD, "outcome": "RolledBack", "reason": "errors failed", "flags": ["pay"],
    "endedAt": "2026-11-29T08:00:00Z",
}  # fmt: skip
STOPPED = {"flag": "pay", "definition": "1a2b", "outcome": "RolledBack", "at": "2026-11-29T08:00:00Z"}
QUEUED = candidate("Queued", SECOND, "pay")
ROLLOUT = rollout(
    FIRST_STEP, QUEUED, running=1, queued=1, furthest="1/2 10%", history=[ENDED], stopped=[STOPPED],
    spec={"analysis": {"failureLimit": 3}},
)  # fmt: skip


def test_status_tells_of_each_candidate_and_what_to_do() -> None:
    assert as_text(rollout_state(ROLLOUT)).splitlines() == [
        "FlagRollout shop/checkout",
        "  Set:       checkout",
        "  Phase:     Progressing",
        "  Changes:   1 running, 1 queued, 1 stopped definitions",
        "  Promoted:  main@sha1:aaaaaaaaaaaa",
        "  Status:    rolling out",
        "",
        "Candidate 444444444444 (banner)",
        "  Commit:    main@sha1:bbbbbbbbbbbb by Ada <ada@example.com>",
        "  Phase:     Progressing, step 1/2, 10% of users",
        "  Held:      WaitingForApproval: it waits for an approval",
        "  Since:     2026-11-30T08:10:00Z",
        "  Served:    3/3 since 2026-11-30T08:00:00Z",
        "  Failed:    1 of at most 3 checks",
        "  To do:     flagstaff rollout approve checkout --candidate 444444444444 -n shop",
        "",
        "STEP  USERS  LASTS  SAMPLES  APPROVAL  STATE",
        "1/2   10%    10m    -        required  now, until 2026-11-30T08:10:00Z at least",
        "2/2   50%    -      -        -",
        "",
        "CHECK   VERDICT  VALUE   GOOD          SAMPLES  AT                    MESSAGE",
        "errors  Fail     0.0212  at most 0.01  612      2026-11-30T08:05:00Z  -",
        "",
        "Candidate 555555555555 (pay)",
        "  Commit:    main@sha1:bbbbbbbbbbbb by Ada <ada@example.com>",
        "  Phase:     Queued, waits for other changes to end, nobody",
        "  Since:     2026-01-02T11:00:00Z",
        "",
        "STEP  USERS  LASTS  SAMPLES  APPROVAL  STATE",
        "1/2   10%    10m    -        required",
        "2/2   50%    -      -        -",
        "",
        "EARLIER                 FLAGS  OUTCOME     ENDED                 REASON",
        "main@sha1:aaaaaaaaaaaa  pay    RolledBack  2026-11-29T08:00:00Z  errors failed",
    ]


def test_a_rollout_that_nobody_reconciled_is_shown() -> None:
    state = rollout_state(rollout(phase=None, conditions=[]))
    assert (state.phase, state.candidates) == ("Unknown", ())
    assert as_text(state).splitlines()[2] == "  Phase:     Unknown"


def test_malformed_objects_are_shown() -> None:
    odd = candidate("Progressing", FIRST, "banner", step=1, propagatedAt="9999-12-31T23:59:59Z")
    state = rollout_state(
        rollout(odd, {"phase": 7}, spec={"steps": [{"share": 1}, {"share": 2, "minDuration": "1h"}]})
    )
    assert [one.layer.candidate for one in state.candidates] == [FIRST]
    assert state.candidates[0].steps[1].until is None
    unreadable = rollout_state(rollout(odd, spec={"steps": 1}))
    assert unreadable.candidates[0].steps == ()
    assert as_text(unreadable).startswith("FlagRollout shop/checkout\n")


def test_a_step_that_was_interrupted_ends_later() -> None:
    resumed = {**FIRST_STEP, "exposedSeconds": 240.0}
    assert rollout_state(rollout(resumed)).candidates[0].steps[0].until == "2026-11-30T08:06:00Z"


def test_the_record_for_programs_has_what_the_lines_say() -> None:
    [record] = plain([as_record(rollout_state(ROLLOUT))], RolloutRecord)
    first: dict[str, Any] = record["candidates"][0]
    assert (record["flagSet"], first["digest"], first["users"]) == ("checkout", FIRST, "some")
    assert first["steps"][0]["until"] == "2026-11-30T08:10:00Z"
    assert first["metrics"][0]["query"] == CHECK["query"]
    assert first["actions"][0] == "flagstaff rollout approve checkout --candidate 444444444444 -n shop"


def test_a_row_has_how_many_run_and_the_furthest() -> None:
    columns = columns_of(
        "FlagRollout", lambda row: {ROLLOUT.key: ROLLOUT}.get(row.key), namespaced=False, clusters=False
    )
    heading, line = table(columns, [object_row(ROLLOUT)]).splitlines()
    assert heading.split()[:5] == ["NAME", "SET", "PHASE", "RUNNING", "FURTHEST"]
    assert line.split()[:6] == ["checkout", "checkout", "Progressing", "1", "1/2", "10%"]


def test_describe_tells_each_check_with_its_query() -> None:
    text = describe_object(ROLLOUT, [])
    assert "Furthest:    1/2 10%\n" in text
    assert "Candidate 444444444444 (banner)\n" in text
    assert 'Queries:\n  errors: sum(rate(errors{flag="new-cart"}[5m]))\n' in text
    assert "Earlier rollouts:\n" in text


def test_the_tree_has_rollouts_and_overrides_below_their_flag_set() -> None:
    step = entry("Exposed", FIRST, "banner", step="1/2", share="10")
    target = set_object(digest=MIXED, localDigest=OWN_NEW, rollouts=[step])
    objects = (flag_set(), target, rollout(FIRST_STEP), override(flag="pay"))
    [root] = object_tree(objects, by_member(read_sets(objects, NOW)))
    assert [(child.kind, child.state) for child in root.children if child.kind.startswith("Flag")] == [
        ("FlagRollout", "Progressing; step 1/2, 10% of users: banner; it waits for an approval"),
        ("FlagOverride", 'flag "pay" is "off" until 2026-01-02T18:00:00Z: INC-4711'),
    ]
    assert root.state.endswith("rollout checkout 1/2 10%, override checkout.banner")


def test_the_tree_says_of_a_flag_set_that_what_it_depends_on_is_being_rolled_out() -> None:
    condition = {
        "type": "DependenciesServed", "status": "False", "reason": "DependencyRollout",
        "message": "FlagSet base is applied, but not served to all users: FlagRollout slow rolls it out",
    }  # fmt: skip
    named = {"namespace": "shop", "name": "checkout"}
    [root] = object_tree(
        [Resource.of({"kind": "FlagSet", "metadata": named, "status": {"conditions": [condition]}})], {}
    )
    assert root.state == condition["message"]
