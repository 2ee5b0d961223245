"""The command line options of the verbs that build a flag set without a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controller.flagsets.building.commit_provenance import ProvenanceDetail
from controller.flagsets.building.compose import FailurePolicy
from evaluator.flags.model import EMPTY, Bucketing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from controller.flagsets.preparing.patches import Patch
    from controller.local.rollouts.rollout_files import RolloutFiles
    from evaluator.flags.overrides import Override


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """One source and one flag set."""

    source: str
    reference: str | None = None
    paths: tuple[str, ...] = (".",)
    insecure: bool = False
    """Speak plain HTTP with a registry."""
    interval: float = 10.0
    """Seconds between two polls of a remote."""
    substitute: Mapping[str, str] | None = None
    """Values of variables; None: nothing is substituted."""
    age_keys: str = ""
    """Age identities, one a line, that decrypt what sops encrypted."""
    verify_keys: Mapping[str, bytes] = field(default_factory=lambda: EMPTY)
    """Public keys by the names of their files; with one of them what is read must be signed. Empty: none."""
    patches: tuple[Patch, ...] = ()
    """JSON Patches of the merged layers."""
    lenient: bool = False
    """Whether flags with warnings are served."""
    policy: FailurePolicy = FailurePolicy.PER_FLAG
    bucketing: Bucketing = Bucketing.V2
    show_bucketing: bool = False
    """Name the generation of `fractional` in every answer's metadata."""
    provenance: ProvenanceDetail = ProvenanceDetail.FULL
    """What every response's metadata says of its commit."""
    prune_guard: bool = False
    """Refuse a revision that removes flags in bulk, instead of warning about it."""
    worktree: bool = False
    """Read the files of a folder as they are on disk, instead of commits."""
    state_dir: Path | None = None
    """Where mirror, artifacts and applied objects outlive the process; None: a temporary folder."""
    overrides: tuple[Override, ...] = ()
    """Flags that are set by hand while the process runs."""
    rollouts: tuple[Mapping[str, Any], ...] = ()
    """Manifests of FlagRollouts, MetricTemplates and FlagOverrides, and of Secrets for the templates."""
    rollout_files: RolloutFiles | None = None
    """Where these manifests stand; None: they stay as they are."""
    endpoint: str | None = None
    """Of a bucket: the URL of its store."""
    region: str | None = None
    """Of a bucket."""
