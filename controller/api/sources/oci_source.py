"""The artifact in a container registry of a FlagSource."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from controller.api.objects.fields import LocalReference, Model, ShortText, VersionRange, that
from controller.api.objects.schema_words import in_schema
from controller.api.parsing.oci_address import DIGEST, TAG, check_digest, check_tag, parse_address
from controller.api.parsing.patterns import compile_pattern


class OciReference(Model):
    """What to follow; the most exact of several wins, as with Flux: digest, semver, tag. None is `latest`."""

    tag: Annotated[str, in_schema(pattern=rf"^{TAG.pattern}$"), that(check_tag)] | None = None
    """One tag, `latest` if nothing is set."""
    semver: VersionRange | None = None
    """A range over the tags, such as `>=1.0.0 <2.0.0`; the highest version is used."""
    semver_filter: (
        Annotated[str, Field(min_length=1, max_length=1024), that(compile_pattern, "InvalidReference")] | None
    ) = None
    """A regular expression (RE2); with `semver`, only tags that it matches count."""
    digest: Annotated[str, in_schema(pattern=rf"^{DIGEST.pattern}$"), that(check_digest)] | None = None
    """One manifest, by its digest."""


class LayerSelector(Model):
    """Which layer holds the files, and how."""

    media_type: ShortText | None = None
    """The first layer with this media type."""
    operation: Literal["extract", "copy"] = "extract"
    """`extract`: the files in the layer's tar.gz. `copy`: the layer as one file, named by its title."""


class OciSpec(Model):
    """An artifact in a container registry."""

    url: Annotated[str, Field(max_length=2048), in_schema(pattern="^oci://.+$"), that(parse_address)]
    """The repository, `oci://HOST/REPOSITORY`, without a tag, which belongs in `ref`."""
    ref: OciReference = OciReference()
    """What to follow. If several are set, the first of `digest`, `semver` and `tag` is used, as with Flux."""
    layer_selector: LayerSelector = LayerSelector()
    """Which layer holds the files, and how; the first layer, a tar.gz, if it is not set."""
    secret_ref: LocalReference | None = None
    """A Secret in the same namespace of type `kubernetes.io/dockerconfigjson`."""
    cert_secret_ref: LocalReference | None = None
    """A Secret in the same namespace: `ca.crt` is trusted in addition to the system's authorities;
    `tls.crt` and `tls.key` are presented to the registry.
    """
    proxy_secret_ref: LocalReference | None = None
    """A Secret in the same namespace with the `address` of an http proxy, and `username` and `password` if
    it needs them.
    """
    insecure: bool = False
    """Whether to speak plain HTTP with the registry."""
