"""What goes wrong between a registry and us, and artifacts that are made to harm."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import socket
import tarfile
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from controller.artifacts.archive import ArchiveRefused
from controller.runtime.hosts import Hosts
from controller.runtime.setbacks import Failed, Setback, Stalled
from controller.sources.backend import TreeLimits
from tests.registry.artifacts import Artifact, flux, flux_of, oras_files, sha256, tar
from tests.registry.front import Answer, before
from tests.worlds.sources import confined_opener, opener, read_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.registry.fixtures import Shelf

FILES: dict[str, str | bytes] = {"flags.json": json.dumps({"flags": {}}), "more.json": "1" * 1000}


async def failure_of(shelf: Shelf, into: Path, artifact: Artifact, **oci: Any) -> Setback:
    shelf.pusher.push(shelf.repository, "latest", artifact)
    async with opener() as sources:
        source = await sources.open(shelf.url, **oci)

        async def look() -> None:
            await source.fetch(await source.resolve(), into)

        with pytest.raises(Setback) as raised:
            await look()
    return raised.value


def of_blobs(change: Callable[[Answer], Answer]) -> Callable[[str, Answer], Answer | None]:
    return lambda asked, answer: change(answer) if "/blobs/" in asked else None


def of_manifests(change: Callable[[Answer], Answer]) -> Callable[[str, Answer], Answer | None]:
    return lambda asked, answer: (
        change(answer) if asked.startswith("GET ") and "/manifests/" in asked else None
    )


async def test_neither_a_registry_nor_what_it_redirects_to_may_be_on_a_host_that_is_denied(
    shelf: Shelf, tmp_path: Path
) -> None:
    shelf.pusher.push(shelf.repository, "latest", flux(FILES))
    async with confined_opener(Hosts((), ("127.0.0.0/8",))) as sources:
        with pytest.raises(Stalled, match="denied by"):
            await (await sources.open(shelf.url)).resolve()
    async with confined_opener(Hosts((), (), plain_http=False)) as sources:
        with pytest.raises(Stalled, match="denied by --deny-http-sources"):
            await (await sources.open(shelf.url)).resolve()
    away = Answer(307, {"Location": "http://169.254.169.254/latest/meta-data"})
    shelf.front.instead = of_blobs(lambda _: away)
    async with confined_opener(Hosts((), ("169.254.0.0/16",))) as sources:
        source = await sources.open(shelf.url)
        with pytest.raises(Stalled, match=r"169\.254\.169\.254 has the address .* denied"):
            await source.fetch(await source.resolve(), tmp_path / "into")


@pytest.mark.parametrize(
    ("instead", "reason"),
    [
        (of_blobs(lambda answer: replace(answer, cut=True)), "OCIArtifactPullFailed"),
        (of_blobs(lambda answer: replace(answer, body=answer.body[::-1])), "DigestMismatch"),
        (of_blobs(lambda answer: replace(answer, body=answer.body + b"0")), "DigestMismatch"),
        (of_blobs(lambda answer: replace(answer, body=answer.body[:-1])), "DigestMismatch"),
        (of_blobs(lambda answer: Answer(500)), "OCIArtifactPullFailed"),
        (of_blobs(lambda answer: Answer(404)), "RevisionGone"),
        (of_blobs(lambda answer: Answer(302, {"Location": "ftp://127.0.0.1/"})), "OCIArtifactPullFailed"),
        (of_blobs(lambda answer: Answer(302, {"Location": "http://xn--a/"})), "OCIArtifactPullFailed"),
        (of_blobs(lambda answer: Answer(302, {"Location": "http://[/"})), "OCIArtifactPullFailed"),
        (of_blobs(lambda answer: Answer(302, {"Location": "/again"})), "RevisionGone"),
        (of_manifests(lambda answer: replace(answer, body=answer.body + b" ")), "DigestMismatch"),
        (of_manifests(lambda answer: replace(answer, cut=True)), "OCIArtifactPullFailed"),
    ],
)
async def test_what_is_not_what_was_named_is_never_used(
    shelf: Shelf, tmp_path: Path, instead: Callable[[str, Answer], Answer | None], reason: str
) -> None:
    shelf.front.instead = instead
    setback = await failure_of(shelf, tmp_path, flux(FILES))
    assert isinstance(setback, Failed)
    assert setback.message.startswith(shelf.url)
    assert "\n" not in setback.message
    assert read_files(tmp_path) == {}
    assert setback.reason == reason


async def test_a_manifest_over_its_limit_is_not_read(shelf: Shelf, tmp_path: Path) -> None:
    shelf.front.instead = of_manifests(lambda answer: replace(answer, body=b" " * (4 * 1024**2 + 1)))
    assert (await failure_of(shelf, tmp_path, flux(FILES))).reason == "LimitExceeded"


async def test_a_layer_over_its_limit_is_not_asked_for(shelf: Shelf, tmp_path: Path) -> None:
    artifact = flux(FILES)
    manifest = json.loads(artifact.manifest)
    manifest["layers"][0]["size"] = 64 * 1024**2 + 1
    content = json.dumps(manifest).encode()
    digest = sha256(content)
    shelf.front.instead = lambda asked, answer: (
        Answer(200, {"Docker-Content-Digest": digest}, content) if "/manifests/" in asked else None
    )
    setback = await failure_of(shelf, tmp_path, artifact)
    assert (setback.reason, isinstance(setback, Stalled)) == ("ArchiveRefused", True)
    assert not [asked for asked in shelf.front.asked if "/blobs/" in asked]


def bomb() -> Artifact:
    """A file of 200 MiB in 200 KiB."""
    with io.BytesIO() as out, gzip.GzipFile("", "wb", 9, out, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w|") as made:
            entry = tarfile.TarInfo("bomb.json")
            entry.size = 200 * 1024**2
            made.addfile(entry, _Zeros())
        packed.close()
        return flux_of(b"", out.getvalue())


class _Zeros(io.RawIOBase):
    def read(self, size: int = -1) -> bytes:
        return bytes(size)


def long_name() -> Artifact:
    return flux({"/".join(["deep"] * 70): "1"})


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (bomb, "ArchiveRefused"),
        (partial(flux_of, tar(FILES), gzip.compress(tar(FILES))[:-200]), "ArchiveRefused"),
        (partial(flux_of, tar(FILES), gzip.compress(tar(FILES)) + b"more"), "ArchiveRefused"),
        (partial(flux_of, b"", gzip.compress(b"no tar" * 200)), "ArchiveRefused"),
        (long_name, "ArchiveRefused"),
        (partial(flux, FILES, tarfile.TarInfo("flags.json")), "ArchiveRefused"),
        (partial(flux, FILES, tarfile.TarInfo("flags.json/inner.json")), "ArchiveRefused"),
        (partial(flux, {"../evil.json": "1"}), "UnsafePath"),
        (partial(flux, {"flags/../../evil.json": "1"}), "UnsafePath"),
        (partial(flux, {"/etc/evil.json": "1"}), "UnsafePath"),
        (partial(flux, {f"{'ä' * 128}.json": "1"}), "UnsafePath"),
    ],
    ids=[
        "bomb", "cut", "longer", "no tar", "deep", "twice", "file and folder", "up", "inner up", "root",
        "long name",
    ],
)  # fmt: skip
async def test_an_archive_that_is_made_to_harm_is_refused(
    shelf: Shelf, tmp_path: Path, made: Callable[[], Artifact], reason: str
) -> None:
    into = tmp_path / "into"
    into.mkdir()
    setback = await failure_of(shelf, into, made())
    assert (setback.reason, isinstance(setback, Stalled)) == (reason, True)
    assert await asyncio.to_thread(os.listdir, tmp_path) == ["into"]


async def test_a_file_over_the_limit_is_left_out(shelf: Shelf, tmp_path: Path) -> None:
    large = flux({"large.json": "1" * 2001, **FILES, "small.json": "1"})
    shelf.pusher.push(shelf.repository, "latest", large)
    async with opener() as sources:
        source = replace(await sources.open(shelf.url), limits=TreeLimits(file_bytes=2000))
        fetched = await source.fetch(await source.resolve(), tmp_path)
    assert read_files(tmp_path) == {**FILES, "small.json": "1"}
    assert [each.partition(",")[0] for each in fetched.skipped] == ["large.json: too large"]


@pytest.mark.parametrize("title", ["", "../evil.json", "/etc/evil.json"])
async def test_a_file_is_not_copied_to_a_place_outside(shelf: Shelf, tmp_path: Path, title: str) -> None:
    into = tmp_path / "into"
    into.mkdir()
    setback = await failure_of(shelf, into, oras_files({title: "1"}), layerSelector={"operation": "copy"})
    assert isinstance(setback, Stalled)
    assert read_files(tmp_path) == {}


@pytest.mark.parametrize(
    "manifest",
    [
        {"manifests": []}, {"layers": []}, {"layers": [{"mediaType": "a", "size": 1}]},
        {"layers": [{"digest": "sha256:" + "0" * 64}]}, {"layers": "none"}, [],
    ],
)  # fmt: skip
async def test_an_invalid_manifest_is_reported(shelf: Shelf, tmp_path: Path, manifest: object) -> None:
    content = json.dumps(manifest).encode()
    shelf.front.instead = lambda asked, answer: (
        Answer(200, {"Docker-Content-Digest": sha256(content)}, content) if "/manifests/" in asked else None
    )
    setback = await failure_of(shelf, tmp_path, flux(FILES))
    assert (setback.reason, isinstance(setback, Stalled)) == ("InvalidArtifact", True)


async def test_a_busy_registry_says_when_to_come_again(shelf: Shelf, tmp_path: Path) -> None:
    body = json.dumps({"errors": [{"code": "TOOMANYREQUESTS", "message": "slow\n\x1b[31mdown"}]}).encode()
    shelf.front.instead = lambda asked, answer: Answer(429, {"Retry-After": "7"}, body)
    setback = await failure_of(shelf, tmp_path, flux(FILES), ref={"semver": "*"})
    assert (setback.delay, isinstance(setback, Failed)) == (7.0, True)
    assert setback.message.endswith("answers 429 (TOOMANYREQUESTS)")


@pytest.mark.parametrize("code", ["a-body", ["a-body"], {}])
async def test_of_an_error_only_codes_of_the_specification_are_shown(
    shelf: Shelf, tmp_path: Path, code: object
) -> None:
    body = json.dumps({"errors": [{"code": code, "message": "a-body"}]}).encode()
    shelf.front.instead = lambda asked, answer: Answer(500, body=body)
    setback = await failure_of(shelf, tmp_path, flux(FILES))
    assert setback.message.endswith("answers 500")


async def test_one_that_does_not_answer_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with opener() as sources:
            host = f"127.0.0.1:{silent.getsockname()[1]}"
            source = await sources.open(f"oci://{host}/team/flags", seconds=0.2)
            with pytest.raises(Failed) as raised:
                await source.resolve()
    assert raised.value.reason == "Timeout"


async def test_a_missing_artifact_is_reported() -> None:
    async with opener() as sources:
        with pytest.raises(Failed) as raised:
            await (await sources.open("oci://127.0.0.1:1/team/flags")).resolve()
    assert raised.value.reason == "OCIArtifactPullFailed"


async def test_tags_come_page_by_page_and_from_the_registry_alone(shelf: Shelf) -> None:
    shelf.pusher.push(shelf.repository, "v1.0.0", flux(FILES))
    pages = {"1": ["v1.0.0"], "2": ["v3.0.0"]}
    link = f'</v2/{shelf.repository}/tags/list?n=1000&last=2>; rel="next"'

    def answer_page(asked: str, answer: Answer) -> Answer | None:
        if "/tags/list" not in asked:
            return None
        second = "last=2" in asked
        body = json.dumps({"tags": pages["2" if second else "1"]}).encode()
        return Answer(200, {} if second else {"Link": link}, body)

    shelf.front.instead = answer_page
    shelf.pusher.tag(shelf.repository, "v1.0.0", "v3.0.0")
    async with opener() as sources:
        assert (await (await sources.open(shelf.url, ref={"semver": "*"})).resolve()).name == "v3.0.0"
        link = "<http://127.0.0.1:1/v2/more>; rel=next"
        with pytest.raises(Failed, match="another host"):
            await (await sources.open(shelf.url, ref={"semver": "*"})).resolve()


async def test_limits_of_a_tree_hold(shelf: Shelf, tmp_path: Path) -> None:
    shelf.pusher.push(shelf.repository, "latest", flux({f"{number}.json": "1" * 100 for number in range(20)}))
    async with opener() as sources:
        source = await sources.open(shelf.url)
        revision = await source.resolve()
        for limits in (TreeLimits(entries=19), TreeLimits(total_bytes=10_000)):
            into = tmp_path / str(limits.entries)
            await asyncio.to_thread(into.mkdir)
            with pytest.raises(ArchiveRefused):
                await replace(source, limits=limits).fetch(revision, into)


async def test_tags_without_end_and_tags_that_are_none_are_bounded(shelf: Shelf) -> None:
    shelf.pusher.push(shelf.repository, "v1.0.0", flux(FILES))
    link = f'</v2/{shelf.repository}/tags/list?n=1000&last=x>; rel="next"'
    body = json.dumps({"tags": [None, 7, "\x1b[31m", *["é"] * 40_000]}).encode()

    def endless(asked: str, answer: Answer) -> Answer | None:
        return Answer(200, {"Link": link}, body) if "/tags/list" in asked else None

    shelf.front.instead = endless
    async with opener() as sources:
        source = await sources.open(shelf.url, ref={"semver": "*"})
        with pytest.raises(Stalled) as raised:
            await source.resolve()
    assert raised.value.reason == "LimitExceeded"
    assert len(shelf.front.asked) == 3


async def test_many_tags_are_compared_without_holding_up_other_work(shelf: Shelf) -> None:
    body = json.dumps({"tags": [f"1.0.{number}" for number in range(70_000)]}).encode()
    shelf.front.instead = lambda asked, answer: Answer(200, {}, body) if "/tags/list" in asked else None
    longest = 0.0
    async with opener() as sources:
        source = await sources.open(shelf.url, ref={"semver": "<0.1"})
        resolving = asyncio.ensure_future(source.resolve())
        while not resolving.done():
            began = time.perf_counter()
            await asyncio.sleep(0.01)
            longest = max(longest, time.perf_counter() - began)
        with pytest.raises(Failed, match=r"no tag matches the version range '<0\.1'"):
            await resolving
    # Comparing them takes more than a second.
    assert longest < 0.5


async def test_a_token_service_that_is_not_there_is_no_missing_tag(shelf: Shelf) -> None:
    challenge = f'Bearer realm="http://{shelf.front.host}/token"'
    shelf.front.instead = lambda asked, answer: (
        Answer(404) if "/token" in asked else Answer(401, {"WWW-Authenticate": challenge})
    )
    async with opener() as sources:
        source = await sources.open(shelf.url)
        with pytest.raises(Failed) as raised:
            await source.resolve()
    assert raised.value.reason == "AuthenticationFailed"


async def test_no_service_beside_us_is_read_as_a_token_service_and_told_to_the_registry(shelf: Shelf) -> None:
    with before(shelf.front.target) as internal:
        internal.instead = lambda asked, answer: Answer(200, {}, b'{"access_token": "internal-secret"}')
        challenge = f'Bearer realm="http://localhost:{internal.server_port}/secret.json"'
        shelf.front.instead = lambda asked, answer: Answer(401, {"WWW-Authenticate": challenge})
        async with opener() as sources:
            source = await sources.open(shelf.url)
            with pytest.raises(Failed, match="token service is on another host, localhost, without https"):
                await source.resolve()
        assert internal.asked == []
    assert set(shelf.front.authorizations) == {None}


@pytest.mark.parametrize("token", ["a b", "a\\nb", "", "é", '{\\"a\\": 1}'])
async def test_what_is_no_token_is_not_sent_to_the_registry(shelf: Shelf, token: str) -> None:
    challenge = f'Bearer realm="http://{shelf.front.host}/token"'
    shelf.front.instead = lambda asked, answer: (
        Answer(200, {}, f'{{"token": "{token}"}}'.encode())
        if "/token" in asked
        else Answer(401, {"WWW-Authenticate": challenge})
    )
    async with opener() as sources:
        source = await sources.open(shelf.url)
        with pytest.raises(Failed, match="the token service gives no token"):
            await source.resolve()
    assert set(shelf.front.authorizations) == {None}


@pytest.mark.parametrize(
    "challenge", ["", "Negotiate", 'Bearer realm="ftp://x/token"', 'Bearer realm="http://ada:word@x/token"']
)
async def test_a_challenge_that_cannot_be_met_is_reported(shelf: Shelf, challenge: str) -> None:
    shelf.front.instead = lambda asked, answer: Answer(401, {"WWW-Authenticate": challenge})
    async with opener() as sources:
        source = await sources.open(shelf.url)
        with pytest.raises(Failed) as raised:
            await source.resolve()
    assert raised.value.reason == "AuthenticationFailed"
