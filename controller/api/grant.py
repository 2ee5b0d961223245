"""FlagGrant: lets objects of other namespaces refer to those of its own, as a ReferenceGrant does."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from controller.api.objects.fields import Model, Name

KIND: Final = "FlagGrant"


class GrantFrom(Model):
    """Objects of one kind in another namespace."""

    group: Literal["", "flagstaff.dev"]
    kind: Literal["FlagAlert", "FlagSet", "Pod"]
    namespace: Annotated[str, Field(min_length=1, max_length=63)]


class GrantTo(Model):
    """Objects of one kind in the grant's namespace, or the one of that name."""

    group: Literal["flagstaff.dev", "core.openfeature.dev", "source.toolkit.fluxcd.io"]
    kind: Literal[
        "FlagSource",
        "FlagSet",
        "FlagReceiver",
        "FeatureFlagConfiguration",
        "FeatureFlag",
        "FeatureFlagSource",
        "InProcessConfiguration",
        "EvaluatorUpgrade",
        "GitRepository",
        "OCIRepository",
        "Bucket",
        "ExternalArtifact",
    ]
    name: Name | None = None


class FlagGrantSpec(Model):
    """Each of `from` may refer to each of `to`."""

    from_: Annotated[tuple[GrantFrom, ...], Field(alias="from", min_length=1, max_length=64)]
    to: Annotated[tuple[GrantTo, ...], Field(min_length=1, max_length=64)]
