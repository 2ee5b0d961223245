"""The remote flag provider of a FeatureFlagConfiguration or a FlagSet, and what its status says of one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from controller.api.fields import TIME, Interval, Model, Name, ObjectName, RuledModel, SpecRule, in_schema

if TYPE_CHECKING:
    from controller.api.meta import Resource

FIELD: Final = "remoteFlagProvider"
"""The field of a spec."""
_DECISIVE: Final = ("name", "version", "staleSince", "shards")
_WEB: Final = "^https?://[^/@?# ]+([/?][^# ]*)?$"
_RPC: Final = "^grpcs?://[^/@?# ]+:[0-9]{1,5}$"


class RemoteCredentials(Model):
    """The login at a provider."""

    secret: ObjectName
    """A Secret in the same namespace with a bearer token. Of its other keys, `ca.crt` is trusted for the
    server, and `tls.crt` with `tls.key` is the client's certificate.
    """
    key: Annotated[str, Field(min_length=1, max_length=253)] = "token"
    """The key of the token in the Secret. A Secret with a client's certificate needs no token."""


class RemoteFlagProvider(RuledModel):
    """Where flags that are merged with the object's own come from."""

    RULES = (
        SpecRule(
            "self.type == 'flagSource' ? has(self.flagSource) && !has(self.url) && !has(self.credentials) "
            ": has(self.url) && !has(self.flagSource)",
            "type flagSource needs flagSource, and neither url nor credentials; http and grpc need url, and "
            "no flagSource",
            lambda given: (
                (given.flag_source is not None and given.url is None and given.credentials is None)
                if given.type == "flagSource"
                else (given.url is not None and given.flag_source is None)
            ),
        ),
        SpecRule(
            f"self.type != 'http' || !has(self.url) || self.url.matches('{_WEB}')",
            "url must be https://HOST/PATH, without a username or a password; they belong in credentials",
            lambda given: given.type != "http" or given.url is None or bool(re.search(_WEB, given.url)),
        ),
        SpecRule(
            f"self.type != 'grpc' || !has(self.url) || self.url.matches('{_RPC}')",
            "url must be grpcs://HOST:PORT, or grpc://HOST:PORT without TLS",
            lambda given: given.type != "grpc" or given.url is None or bool(re.search(_RPC, given.url)),
        ),
    )

    type: Literal["http", "grpc", "flagSource"]
    """`http`: a document as flagd reads it, at a URL. `grpc`: a server of `flagd.sync.v1`, such as flagd or
    the Flagstaff proxy of another cluster. `flagSource`: a FlagSource in the same namespace.
    """
    strategy: Literal["merge", "override"] = "merge"
    """Which flag is served where the object and the provider have one of the same key. `merge`: the
    object's. `override`: the provider's.
    """
    url: Annotated[str, Field(min_length=1, max_length=2048)] | None = None
    """For `http`, the URL of the document; for `grpc`, `grpcs://HOST:PORT` or `grpc://HOST:PORT`."""
    flag_source: ObjectName | None = None
    """For `flagSource`, the name of the FlagSource."""
    paths: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...], Field(min_length=1, max_length=32)
    ] = (".",)
    """For `flagSource`, the layers, as in a [FlagSet](flagset.md)."""
    selector: Annotated[str, Field(max_length=512)] = ""
    """For `grpc`, the selector of the flags, such as `flagSetId=shop/checkout`."""
    interval: Interval = 60.0
    """How often the provider is asked, at least half a second. A FlagSource is followed at once."""
    credentials: RemoteCredentials | None = None
    """The login at the server; without it, the request is anonymous."""
    service_account_name: ObjectName | None = None
    """The service account in the same namespace with whose rights the Secret is read and FlagShards are
    written; the controller's [default](../reference/controller-settings.md#settings) if it is not set.
    """


class ProviderShard(Model):
    """A part of the flags of a provider."""

    name: Name
    """The name of a FlagShard in the same namespace."""
    digest: Annotated[str, Field(max_length=128)]
    """The digest of its content."""


class ProviderStatus(Model):
    """The flags of a remote provider that are in force."""

    name: str
    """Where they come from, without what may be secret."""
    type: str
    """The provider's type."""
    version: str | None = None
    """The version in force: the server's ETag, the document's own version, the revision of a source, or the
    digest of the flags.
    """
    last_update_time: Annotated[str, TIME] | None = None
    """When this version was fetched first."""
    last_modified: Annotated[str, TIME] | None = None
    """When the server says that it was changed."""
    stale_since: Annotated[str, TIME] | None = None
    """Since when the provider does not confirm this version; absent while it does."""
    flags: int | None = None
    """How many flags it has."""
    message: str | None = None
    """What is wrong with the provider, and what to do."""
    observed: str | None = None
    """Of which fields of the spec this is the result, as a digest."""
    shards: Annotated[
        tuple[ProviderShard, ...], Field(max_length=64), in_schema(x_kubernetes_list_type="atomic")
    ] = ()
    """The FlagShards that hold the flags."""

    def fields(self) -> dict[str, Any]:
        """Return the entry as a status has it."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def provider_spec(resource: Resource) -> Mapping[str, Any] | None:
    """The remote provider in an object's spec, as far as it can be read; None where there is none."""
    given = resource.spec.get(FIELD)
    return given if isinstance(given, dict) else None


def provider_entries(status: object) -> list[Mapping[str, Any]]:
    """The entries of `providers` in a status, as far as they can be read."""
    entries = status.get("providers") if isinstance(status, Mapping) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def entries_in_force(status: object) -> list[dict[str, Any]]:
    """What a status says of remote flags, without what decides nothing that is delivered."""
    return [{name: entry[name] for name in _DECISIVE if name in entry} for entry in provider_entries(status)]


def provider_shards(status: object) -> tuple[str, ...]:
    """The names of the FlagShards that hold remote flags, each once, by the status of the object."""
    listed = (entry.get("shards") for entry in provider_entries(status))
    shards = (shard for shards in listed if isinstance(shards, list) for shard in shards)
    return tuple(dict.fromkeys(str(shard.get("name")) for shard in shards if isinstance(shard, dict)))
