"""Of the objects of a group the oldest count."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from hypothesis import given
from hypothesis import strategies as st

from controller.cli.published import with_bounds
from controller.delivery.grants import Referring, changed_grants, granted_kinds
from controller.delivery.object_bounds import BOUNDS, GRANTS, ObjectBound
from controller.events.alert_selection import AlertGrants
from controller.runtime.cache import Cache, Change
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from controller.api.meta import Resource

BOUND: Final = ObjectBound(("Thing",), "namespace", 3, "TooManyThings")
PROMISES: Final = Path(__file__).parents[4] / "docs/reference/security-promises.md"


@given(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 3), max_size=9).flatmap(
        lambda ages: st.permutations(sorted(ages.items()))
    ),
    st.data(),
)
def test_the_oldest_count_in_any_order_and_one_that_goes_lets_the_next_in(
    ages: list[tuple[str, int]], data: st.DataObject
) -> None:
    group = [
        thing("Thing", name, creationTimestamp=f"2026-01-01T00:00:{created:02}Z") for name, created in ages
    ]
    by_age = [name for _, name in sorted((created, name) for name, created in ages)]
    assert [resource.name for resource in BOUND.oldest(group)] == by_age[:3]
    assert {resource.name for resource in group if BOUND.excludes(resource, group)} == {*by_age[3:]}
    if not group:
        return
    gone = data.draw(st.sampled_from(group))
    rest = [resource for resource in group if resource is not gone]
    counted_before = {resource.name for resource in BOUND.oldest(group)} - {gone.name}
    let_in = {resource.name for resource in BOUND.oldest(rest)} - counted_before
    woken_by_deletion = {key.name for key in BOUND.edge(rest)}
    assert let_in <= woken_by_deletion
    pushed_out = {resource.name for resource in BOUND.oldest(rest)} - {r.name for r in BOUND.oldest(group)}
    woken_by_creation = {key.name for key in BOUND.edge(group)}
    assert pushed_out <= woken_by_creation
    assert max(len(woken_by_deletion), len(woken_by_creation)) <= 2


def test_the_page_prints_each_bound() -> None:
    page = PROMISES.read_text(encoding="utf-8")
    assert with_bounds(page) == page
    assert all(f"| {bound.group} | {bound.most} |" in page for bound in BOUNDS)


def grant(number: int) -> Resource:
    source = {"group": "flagstaff.dev", "kind": "FlagSet", "namespace": f"reader-{number}"}
    alert = {"group": "flagstaff.dev", "kind": "FlagAlert", "namespace": f"reader-{number}"}
    to = {"group": "flagstaff.dev", "kind": "FlagSource"}
    return thing("FlagGrant", f"g{number:03}", {"from": [source, alert], "to": [to]})


def test_a_grant_beyond_the_bound_grants_nothing_until_an_older_one_is_deleted() -> None:
    grants = [grant(number) for number in range(GRANTS.most + 1)]
    last = Referring("FlagSet", f"reader-{GRANTS.most}")
    assert granted_kinds(reversed(grants), last, "flags", ("FlagSource",)) == ()
    assert granted_kinds(grants[1:], last, "flags", ("FlagSource",)) == ("FlagSource",)
    alerts = AlertGrants()
    alerts.select("shop", reversed(grants))
    assert not alerts.lets_in("shop", last.namespace, "FlagSource", "flags")
    alerts.select("shop", grants[1:])
    assert alerts.lets_in("shop", last.namespace, "FlagSource", "flags")
    assert not alerts.lets_in("shop", "reader-0", "FlagSource", "flags")


def test_a_grant_that_goes_concerns_those_whom_the_next_one_lets_in() -> None:
    grants, cache = [grant(number) for number in range(GRANTS.most + 1)], Cache()
    for resource in grants[1:]:
        cache.put(resource)
    concerned = {resource.name for resource in changed_grants(cache, Change(grants[0], None))}
    assert concerned == {"g000", f"g{GRANTS.most:03}"}
