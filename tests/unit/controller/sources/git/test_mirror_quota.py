from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.sources.git.reading import mirror_quota
from controller.sources.git.reading.mirror_quota import MirrorQuota
from controller.sources.provider import Revision

if TYPE_CHECKING:
    from pathlib import Path

REVISION = Revision("main", "sha1:1")


def a_mirror(root: Path, namespace: str, name: str) -> Path:
    mirror = root / namespace / f"{name}.git"
    mirror.mkdir(parents=True)
    (mirror / "pack").write_bytes(b"a" * 4096)
    return mirror


@pytest.mark.parametrize("forgotten", ["measured", "beside"])
async def test_a_mirror_that_is_forgotten_while_sizes_are_measured_stays_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: str
) -> None:
    quota = MirrorQuota(lambda _: 10**9)
    mirrors = {name: a_mirror(tmp_path, "shop", name) for name in ("measured", "beside")}
    for each in mirrors.values():
        await quota.keep(each, REVISION)
    both = quota.used()["shop"]
    measure = mirror_quota._bytes_in

    def forget_and_measure(folder: Path) -> int:
        quota.forget(mirrors[forgotten])
        return measure(folder)

    monkeypatch.setattr(mirror_quota, "_bytes_in", forget_and_measure)
    await quota.keep(mirrors["measured"], REVISION)
    assert quota.used() == {"shop": both / 2}


async def test_a_mirror_that_is_used_again_counts_again(tmp_path: Path) -> None:
    quota = MirrorQuota(lambda _: 10**9)
    mirror = a_mirror(tmp_path, "shop", "a")
    await quota.keep(mirror, REVISION)
    size = quota.used()["shop"]
    quota.forget(mirror)
    assert not quota.used()
    await quota.admit(mirror, REVISION)
    await quota.keep(mirror, REVISION)
    assert quota.used() == {"shop": size}
