"""The metrics of quotas."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from controller.api.meta import ObjectKey, Resource
from controller.api.source_spec import GitSpec
from controller.app.namespace_limits import QuotaMetrics, artifact_usage
from controller.app.reconcilers import usages_of
from controller.runtime.cache import Cache
from controller.runtime.limits import NamespaceLimits
from controller.sources.backend import FetchRequest
from controller.sources.freshness import Freshness
from controller.sources.git_factory import GitFactory
from tests.git_http import git_server
from tests.repositories import Repository
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)

STORED = {"artifact": {"url": "http://a", "revision": "main@d", "digest": "sha256:d", "size": 300}}


def scrape(metrics: QuotaMetrics) -> dict[tuple[str, str, str], float]:
    return {
        (family.name, sample.labels["namespace"], sample.labels["quota"]): sample.value
        for family in metrics.collect()
        for sample in family.samples
    }


def test_bytes_of_artifacts_are_shown_beside_their_limit() -> None:
    objects = Cache()
    for namespace, name, status in (("shop", "a", STORED), ("shop", "b", {}), ("shop", "c", STORED)):
        key = ObjectKey("FlagSource", namespace, name)
        objects.learn(Resource(key, str(key), 1, "1", status=status))
    assert scrape(QuotaMetrics(NamespaceLimits(artifact_bytes=1000), artifact_usage(objects))) == {
        ("flagstaff_quota_used", "shop", "artifactBytes"): 600,
        ("flagstaff_quota_limit", "shop", "artifactBytes"): 1000,
    }
    assert scrape(QuotaMetrics(NamespaceLimits(), artifact_usage(objects))) == {}


async def test_running_programs_of_git_and_bytes_of_mirrors_are_counted(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit("first", flags__json="1")
    limits = NamespaceLimits(git_processes=3, mirror_bytes=10_000_000)
    sources = GitFactory(no_secret, tmp_path / "mirrors", limits=limits)
    metrics = QuotaMetrics(limits, usages_of([sources]))
    with git_server(tmp_path) as server:
        look = FetchRequest(ObjectKey("FlagSource", "shop", "a"), 60.0, Freshness(NOW, NOW))
        spec = GitSpec.model_validate({"url": f"{server.url}/repository/.git"})
        provider = await sources.open(spec, look)
        await provider.fetch(await provider.resolve(), tmp_path)
    mirror = scrape(metrics)["flagstaff_quota_used", "shop", "mirrorBytes"]
    assert 1_000 < mirror < 1_000_000
    async with sources.places.place("shop"):
        assert scrape(metrics) == {
            ("flagstaff_quota_used", "shop", "mirrorBytes"): mirror,
            ("flagstaff_quota_limit", "shop", "mirrorBytes"): 10_000_000,
            ("flagstaff_quota_used", "shop", "gitProcesses"): 1,
            ("flagstaff_quota_limit", "shop", "gitProcesses"): 3,
        }
    sources.forget(look.key)
    await until(lambda: not scrape(metrics))
    await sources.close()


async def no_secret(namespace: str, name: str, account: str | None) -> Mapping[str, bytes] | None:
    raise AssertionError(f"{namespace}/{name} is nobody's")
