"""One server of each kind for all tests of a process: each test has a bucket of its own."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

import pytest

from controller.api.source_spec import BucketSpec
from controller.runtime.secret_texts import SecretTexts
from controller.sources.bucket_factory import bucket_of
from tests.buckets import azure, google
from tests.s3 import manifest, s3

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from pathlib import Path

    from controller.sources.bucket_place import Bucket
    from tests.buckets.relay import Relay

KINDS = ("s3", "google", "azure")


@pytest.fixture(scope="session")
def google_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with _unless_missing(), google.run_store(tmp_path_factory.mktemp("google")) as port:
        yield port


@pytest.fixture(scope="session")
def azure_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with _unless_missing(), azure.run_store(tmp_path_factory.mktemp("azure")) as port:
        yield port


@contextlib.contextmanager
def empty_bucket(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, tls: ssl.SSLContext | None = None
) -> Iterator[Relay]:
    """An empty bucket of one of `KINDS`."""
    with contextlib.ExitStack() as stack:
        if kind == "google":
            yield stack.enter_context(google.google(request.getfixturevalue("google_port"), tls))
        elif kind == "azure":
            yield stack.enter_context(azure.azure(request.getfixturevalue("azure_port"), tls))
        else:
            yield stack.enter_context(s3(tmp_path, tls))


def bucket(store: Relay, **spec: str) -> Bucket:
    """As a FlagSource in a cluster opens it."""
    content = {key: text.encode() for key, text in store.login.items()}
    return bucket_of(
        BucketSpec.model_validate(manifest(store, **spec)), SecretTexts("apps/bucket", content), {}
    )


@contextlib.contextmanager
def _unless_missing() -> Iterator[None]:
    try:
        yield
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"NO BUCKET IS READ: its server cannot be built: {error}")
