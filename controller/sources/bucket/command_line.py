"""A bucket that a command line names, with credentials from the environment."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.api.parsing.endpoints import is_endpoint
from controller.runtime.reconciling.setbacks import Stalled
from controller.runtime.user_text.secret_texts import SecretTexts
from controller.sources.bucket.bucket_backend import BucketBackend
from controller.sources.bucket.place import Bucket, Scheme, azure_account, parse_url
from controller.sources.bucket.trust import ManifestTrust
from controller.sources.trust_advice import OF_OPTIONS, on_command_line
from controller.sources.verification.cosign import read_cosign_keys
from controller.sources.verification.keys import epoch
from evaluator.flags.model import EMPTY

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILES: Final = (".json", ".yaml", ".yml")
_ADVICE: Final = {
    Scheme.S3: "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what they may read",
    Scheme.GOOGLE: "check GOOGLE_APPLICATION_CREDENTIALS, and what it may read",
    Scheme.AZURE: "check AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, and what they may read",
}
_PROVIDERS: Final = {Scheme.S3: "generic", Scheme.GOOGLE: "gcp", Scheme.AZURE: "azure"}
_SECRETS: Final = (
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_KEY",
)  # fmt: skip
"""Variables that hold what must not be shown."""


def open_bucket(
    text: str,
    environment: Mapping[str, str],
    *,
    endpoint: str | None = None,
    region: str | None = None,
    interval: float = 10.0,
    keys: Mapping[str, bytes] = EMPTY,
) -> BucketBackend:
    """The bucket that `text` names; signed with one of `keys`, by the names of their files, if there are any.
    Raises Stalled (URLInvalid, InvalidSecret).

    An endpoint with `http://` is consent to plain HTTP. Without one it is that of `environment`, as the
    vendor's own tools take it.
    """
    bucket = parse_url(text)
    store, prefix = bucket.store, bucket.prefix
    if store is Scheme.S3:
        endpoint = endpoint or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    endpoint = (endpoint or "").rstrip("/")
    if endpoint and not is_endpoint(endpoint):
        raise Stalled("URLInvalid", "--endpoint: write https://HOST or http://HOST:PORT")
    bucket = replace(
        bucket,
        prefix=f"{prefix}/" if prefix and not prefix.endswith(_FILES) else prefix,
        endpoint=endpoint,
        config=_config(store, environment, endpoint, region),
        client={"timeout": "60s"},
        secrets=tuple(filter(None, map(environment.get, _SECRETS))),
    )
    spec = {
        "provider": _PROVIDERS[store],
        "bucketName": bucket.name,
        "prefix": bucket.prefix,
        "endpoint": endpoint,
        "region": region or "",
        "insecure": endpoint.startswith("http://"),
    }
    advice = {"AuthenticationFailed": _ADVICE[store]}
    trust = _trust(bucket, keys) if keys else None
    return BucketBackend(bucket, interval=interval, advice=advice, spec={"bucket": spec}, trust=trust)


def _trust(bucket: Bucket, content: Mapping[str, bytes]) -> ManifestTrust:
    if bucket.prefix and not bucket.prefix.endswith("/"):
        raise Stalled(
            "URLInvalid", f"{bucket.display_name}: --verify-key: name a folder, which alone is signed"
        )
    keys = read_cosign_keys(SecretTexts(OF_OPTIONS, content))
    return ManifestTrust(keys, epoch({"provider": "bucket"}, content), on_command_line(content))


def _config(
    store: Scheme, environment: Mapping[str, str], endpoint: str, region: str | None
) -> dict[str, str]:
    """Raises Stalled (URLInvalid)."""
    if store is Scheme.AZURE and not environment.get("AZURE_STORAGE_ACCOUNT_NAME"):
        account = azure_account(endpoint)
        if not account:
            message = (
                "az://: set AZURE_STORAGE_ACCOUNT_NAME, or --endpoint https://ACCOUNT.blob.core.windows.net"
            )
            raise Stalled("URLInvalid", message)
        return {"account_name": account}
    return {"region": region} if region and store is Scheme.S3 else {}
