"""The page of a cluster on a real API server: who sees what, and what it shows of a delivery."""

from __future__ import annotations

import contextlib
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import pytest

from tests.cluster.api import Api
from tests.cluster.fleets import wait_served
from tests.cluster.pages import OwnPage, page, token_of
from tests.cluster.patience import within
from tests.cluster.replica import run_replica
from tests.cluster.tokens import sign_token
from tests.worlds.flags import flags
from tests.worlds.objects import configuration, reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.objects import Namespace
    from tests.cluster.pages import PageProcess
    from tests.cluster.plane import Plane
    from tests.cluster.pods import PodProcess
    from tests.cluster.proxies import ProxyProcess
    from tests.cluster.spines import Spine


@pytest.fixture
def shown(cluster: Plane, tmp_path: Path) -> Iterator[PageProcess]:
    """A page of the test's own."""
    with page(cluster, tmp_path / "page") as process:
        yield process


def test_a_caller_sees_the_namespaces_whose_flag_sets_that_user_may_get_and_no_others(
    shown: PageProcess, space: Namespace, neighbour: Namespace
) -> None:
    flag = {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}
    for one in (space, neighbour):
        one.apply(configuration(flagSpec={"flags": {"banner": flag}}))
    first, second = token_of(space), token_of(neighbour)
    within(lambda: f"{space.name}/flags" in shown.get("/delivery", first)[1])
    within(lambda: f"{neighbour.name}/flags" in shown.get("/delivery", second)[1])
    for path in ("", "/flags", "/delivery", "/pending"):
        assert neighbour.name not in shown.get(path, first)[1]
    hidden = shown.get(f"/flags?set={neighbour.name}/flags", first)
    missing = shown.get("/flags?set=nowhere-at-all/flags", first)
    assert hidden[0] == missing[0] == 404
    assert hidden[1].replace(neighbour.name, "…") == missing[1].replace("nowhere-at-all", "…")
    assert shown.get(f"/delivery?set={neighbour.name}/flags", first)[0] == 404


def test_a_caller_without_any_right_sees_no_flag_set(shown: PageProcess, space: Namespace) -> None:
    space.apply(configuration(flagSpec={"flags": {}}))
    space.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}})
    status, text = shown.get("/delivery", Api(space.plane).token(space.name, "nobody"))
    assert status == 200
    assert "There is no flag set yet, or you may see none." in text
    assert space.name not in text


@pytest.mark.slow
def test_a_right_that_is_taken_away_ends_what_is_seen(shown: PageProcess, space: Namespace) -> None:
    space.apply(configuration(flagSpec={"flags": {}}))
    token = token_of(space)
    within(lambda: f"{space.name}/flags" in shown.get("/delivery", token)[1])
    space.delete("rolebinding", "viewer")
    within(lambda: space.name not in shown.get("/delivery", token)[1], patience=90)


def test_nothing_is_shown_without_a_token_that_the_cluster_accepts(
    shown: PageProcess, space: Namespace
) -> None:
    token = token_of(space)
    assert shown.get("/delivery")[0] == 401
    assert "needs the token of a user of the cluster" in shown.get("/delivery")[1]
    assert shown.get("/delivery", token, "Basic")[0] == 401
    status, text = shown.get("/delivery", token[:-6] + "AAAAAA")
    assert status == 401
    assert "does not accept your token" in text
    assert shown.get("/changes", token[:-6] + "AAAAAA")[0] == 401


def test_an_expired_token_is_refused_in_plain_words(
    cluster: Plane, shown: PageProcess, space: Namespace
) -> None:
    token_of(space)
    status, text = shown.get("", sign_token(cluster, space.name, "viewer", -3600))
    assert status == 401
    assert "Your token has expired. Log in again" in text


def test_a_laggard_comes_and_goes_by_name(
    cluster: Plane, spine: Spine, fleet: list[PodProcess], delivering: ProxyProcess, tmp_path: Path
) -> None:
    token = token_of(spine)
    with page(cluster, tmp_path / "page", "--proxies", f"127.0.0.1:{delivering.management}") as shown:

        def delivery() -> str:
            return shown.get(f"/delivery?set={spine.name}/flags", token)[1]

        within(lambda: "3 of 3 evaluators serve" in delivery(), delivery)
        fleet[0].evaluator.stop()
        fleet[0].delete()
        within(lambda: "2 of 2 evaluators serve" in delivery(), delivery)
        commit = spine.push("off", flags__json=flags(banner="off"))
        wait_served(spine, "2/2")
        within(lambda: f"2 of 2 evaluators serve main@sha1:{commit[:12]}" in delivery(), delivery)
        assert "For all users" in delivery()


def test_the_page_of_ones_own_machine_shows_what_the_kubeconfig_may_see(
    cluster: Plane, space: Namespace, neighbour: Namespace, tmp_path: Path
) -> None:
    for one in (space, neighbour):
        one.apply(configuration(flagSpec={"flags": {}}))
    space.apply(*reader("viewer", "get", "list", "watch", flag_sets=True))
    config = cluster.config_for(Api(cluster).token(space.name, "viewer"), "own-page")
    with run_replica(OwnPage(config, tmp_path, "--namespaces", space.name)) as own:
        name, port, mode = own.opened_file()
        assert mode == "600"

        def ask(host: str) -> tuple[int, str]:
            connection = HTTPConnection("127.0.0.1", int(port), timeout=10)
            with contextlib.closing(connection):
                connection.request("GET", "/ui/delivery", headers={"Host": host})
                answer = connection.getresponse()
                return answer.status, answer.read().decode()

        within(lambda: f"{space.name}/flags" in ask(f"{name}:{port}")[1], own.log_text)
        assert neighbour.name not in ask(f"{name}:{port}")[1]
        # The viewer may see flag sets and what they write alone.
        assert "flagsources cannot be read from the cluster" in ask(f"{name}:{port}")[1]
        for other in (f"127.0.0.1:{port}", f"localhost:{port}", f"0.localhost:{port}"):
            assert ask(other)[0] == 403
        assert own.end() == 0
