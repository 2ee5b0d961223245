"""Metrics, rules and the dashboard against a real Prometheus that scrapes all processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import urllib.request
from datetime import timedelta
from functools import reduce
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import trustme
import yaml
from prometheus_client.parser import text_string_to_metric_families

from controller.runtime.clock import now
from evaluator.flags.candidates import candidate_digest, changed_flags
from evaluator.flags.merge import parse
from evaluator.host.times import timestamp
from tests.cluster.admission import MANIFEST, AdmissionProcess
from tests.cluster.fleets import wait
from tests.cluster.pages import page
from tests.cluster.patience import within
from tests.cluster.prometheus import Prometheus, folder, run_prometheus
from tests.cluster.replica import run_replica
from tests.worlds.flags import flags
from tests.worlds.objects import manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.cluster.objects import Namespace
    from tests.cluster.plane import Plane
    from tests.cluster.plugin import ControllerPorts
    from tests.cluster.pods import PodProcess
    from tests.cluster.proxies import ProxyProcess
    from tests.cluster.spines import Spine

ROOT: Final = Path(__file__).parents[2]
MONITORING: Final = ROOT / "deploy" / "monitoring"
RULES: Final = MONITORING / "rules.yaml"
PAGE: Final = ROOT / "docs" / "reference" / "metrics.md"
HEAD: Final = """# Metrics

What each process serves at `/metrics` of its management port, written from a scrape of all of them.
[Operating](../operating.md) has the alerts.
"""
RIGHTS: Final = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
REWRITE: Final = "FLAGSTAFF_REWRITE" in os.environ
PARTS_OF_HISTOGRAMS: Final = ("le", "quantile")

pytestmark = pytest.mark.timeout(300)


class UnaskedAdmission(AdmissionProcess):
    """Admission with a certificate of its own, on a plane that other tests use and that never asks it."""

    def mount(self) -> None:
        """Write the certificate."""
        issued = trustme.CA().issue_cert("127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(self.log.parent / "tls.crt")
        issued.private_key_pem.write_to_path(self.log.parent / "tls.key")


@pytest.fixture
def ports(
    cluster: Plane, spine: Spine, fleet: list[PodProcess], delivering: ProxyProcess,
    controller_ports: ControllerPorts, tmp_path: Path,
) -> Iterator[Mapping[str, list[int]]]:  # fmt: skip
    """The management ports by process; the evaluators have been asked, and a commit has reached them."""
    rights = [document for document in yaml.safe_load_all(MANIFEST.read_text()) if document["kind"] in RIGHTS]
    cluster.kubectl("apply", "--server-side", "-f", "-", given="\n---\n".join(map(json.dumps, rights)))
    with (
        run_replica(UnaskedAdmission(cluster, tmp_path / "admission")) as process,
        page(cluster, tmp_path / "page") as shown,
    ):
        commit = spine.push(flags__json=flags(banner="off", pay="on"))
        assert wait(spine, "ffc/flags", commit)[0] == 0
        put_progress(spine)
        yield {
            "controller": [controller_ports.management],
            "admission": [process.management],
            "proxy": [delivering.management],
            "page": [shown.management],
            "evaluator": [pod.port("management") for pod in fleet],
        }


def put_progress(space: Namespace) -> None:
    """An override in force, and a rollout of `pay` with all that metrics show; suspended, so its status
    stays.
    """
    target = {"flagSetRef": {"name": "flags"}}
    expires = timestamp(now() + timedelta(hours=1))
    order = {"flag": "banner", "variant": "on", "reason": "INC-1", "expiresAt": expires}
    steps = [{"share": 10}]
    earlier, later = flags(pay="off"), flags(pay="on")
    shard = {"digest": "sha256:1", "flagSpec": json.loads(earlier)}
    space.apply(
        manifest("FlagOverride", "banner-on", {**target, **order}),
        manifest("FlagShard", "pay-promoted", shard),
        manifest("FlagRollout", "pay", {**target, "flags": ["pay"], "steps": steps, "suspend": True}),
    )
    space.wait_ready("flagoverride", "banner-on")
    promoted, desired = (parse(text.encode(), file="flags.json").flag_set for text in (earlier, later))
    changed = dict(changed_flags(desired, promoted, ("pay",)))
    candidate = {
        "digest": candidate_digest(changed), "flags": changed, "phase": "Paused", "step": 0,
        "stepText": "1/1", "share": 10, "salt": "pay/0a1b2c3d",
        "metrics": [{"name": "errors", "verdict": "Pass", "value": 0.1}],
    }  # fmt: skip
    status = {
        "phase": "Paused", "promoted": {"digest": "sha256:1", "shard": "pay-promoted"},
        "candidates": [candidate],
    }  # fmt: skip
    change = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    space.kubectl("patch", "flagrollout", "pay", *change)


def evaluate(pod: PodProcess) -> None:
    """Evaluations over OFREP: of a flag with an override, of one in a rollout, and one that fails."""
    for key, status in (("banner", 200), ("pay", 200), ("missing", 404)):
        connection = HTTPConnection("127.0.0.1", pod.port("ofrep"), timeout=10)
        with contextlib.closing(connection):
            body = '{"context": {"targetingKey": "user-1"}}'
            headers = {"content-type": "application/json"}
            connection.request("POST", f"/ofrep/v1/evaluate/flags/{key}", body, headers)
            assert connection.getresponse().status == status


def scrape(port: int) -> dict[str, tuple[str, set[str], str]]:
    """(type, labels, help) of each metric of a process, by its name as queries have it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        page = response.read().decode()
    described = {}
    for family in text_string_to_metric_families(page):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if not name.endswith("_created"):
            labels = {label for sample in family.samples for label in sample.labels}
            described[name] = (family.type, labels - {*PARTS_OF_HISTOGRAMS}, family.documentation)
    return described


ROW: Final = re.compile(r"\| `(\w+)` \| (\w+) \| (.*?) \| (.*) \|")


def documented_metrics() -> dict[str, dict[str, tuple[str, set[str], str]]]:
    """What the page says, by process, in the form of `scrape`."""
    current: dict[str, tuple[str, set[str], str]] = {}
    processes = {}
    for line in PAGE.read_text().splitlines() if PAGE.exists() else ():
        if line.startswith("## "):
            processes[line.removeprefix("## ").lower()] = current = {}
        elif row := ROW.fullmatch(line):
            name, kind, labels, text = row.groups()
            current[name] = (kind, set(re.findall(r"`(\w+)`", labels)), text)
    return processes


def write_page(processes: Mapping[str, Mapping[str, tuple[str, set[str], str]]]) -> str:
    """The page of these metrics."""
    parts = [HEAD]
    for process, metrics in processes.items():
        parts.append(f"## {process.capitalize()}\n\n| metric | type | labels | |\n|---|---|---|---|")
        parts.extend(
            f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in sorted(labels))} | {text} |"
            for name, (kind, labels, text) in sorted(metrics.items())
        )
        parts.append("")
    return "\n".join(parts)


def test_the_page_has_every_metric_of_every_process(
    ports: Mapping[str, list[int]], fleet: list[PodProcess]
) -> None:
    evaluate(fleet[0])
    known = documented_metrics()
    scraped = {process: scrape(numbers[0]) for process, numbers in ports.items()}
    for process, metrics in scraped.items():
        for name, (kind, labels, text) in metrics.items():
            # A metric without samples shows no labels; the page keeps those that an earlier scrape had.
            before = known.get(process, {}).get(name, ("", set(), ""))[1]
            metrics[name] = (kind, labels | before, text)
    if REWRITE:
        PAGE.write_text(write_page(scraped))
    described = documented_metrics()
    for process, metrics in scraped.items():
        assert described[process] == metrics, f"run this test with FLAGSTAFF_REWRITE=1: {process}"


def queries() -> list[str]:
    """Every expression of the dashboard, with its variables filled in."""
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    variables = {"$namespace": ".*", "$flag": ".*", "$__rate_interval": "5m", "$__range": "5m"}
    filled = [
        reduce(lambda text, name: text.replace(name, variables[name]), variables, expression)
        for expression in expressions
    ]
    assert not any("$" in expression for expression in filled)
    return filled


@pytest.fixture
def prometheus(ports: Mapping[str, list[int]], tmp_path: Path) -> Iterator[Prometheus]:
    with run_prometheus(tmp_path, RULES, ports) as server:
        yield server


@pytest.mark.long
def test_no_query_of_the_dashboard_is_empty_and_every_rule_is_evaluated(
    prometheus: Prometheus, spine: Spine, fleet: list[PodProcess]
) -> None:
    def empty() -> list[str]:
        evaluate(fleet[0])
        return [query for query in queries() if not prometheus.query(query)]

    commit = spine.push(flags__json=flags(banner="on", pay="on"))
    assert wait(spine, "ffc/flags", commit)[0] == 0
    within(lambda: not empty(), empty)
    within(lambda: {rule["health"] for rule in prometheus.rules()} == {"ok"}, prometheus.rules)


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_promtool_passes_the_tests_of_every_alert() -> None:
    tested = yaml.safe_load((MONITORING / "rules_test.yaml").read_text())["tests"]
    assert {rule["alert"] for rule in rules() if "alert" in rule} <= {test["name"] for test in tested}
    command = [str(folder() / "promtool"), "test", "rules", "rules_test.yaml"]
    ended = subprocess.run(command, cwd=MONITORING, capture_output=True, text=True, check=False)
    assert (ended.returncode, "SUCCESS" in ended.stdout) == (0, True), ended.stdout + ended.stderr


def test_the_prometheus_rule_has_the_rules_of_the_plain_file() -> None:
    operators = yaml.safe_load((ROOT / "deploy/components/monitoring/prometheus-rule.yaml").read_text())
    assert operators["spec"] == yaml.safe_load(RULES.read_text())


def test_every_alert_has_a_section_on_the_page_about_operating() -> None:
    headings = re.findall(r"^### (.*)$", (ROOT / "docs" / "operating.md").read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for rule in rules():
        if "alert" in rule:
            assert rule["annotations"]["runbook"].partition("#")[2] in anchors, rule["alert"]
