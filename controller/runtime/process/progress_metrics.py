"""Metrics of what is served otherwise than Git says: FlagOverrides in force, and rollouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily

from controller.api import flagoverride
from controller.api.flagoverride import ACTIVE, FlagOverrideSpec, FlagOverrideStatus
from controller.api.objects.fields import InvalidSpecError
from controller.api.objects.parsed_spec import parse_spec
from controller.api.rollouts import flagrollout
from controller.api.rollouts.rollout_status import FlagRolloutStatus, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric

    from controller.runtime.objects.cache import Cache

_DIGITS: Final = 12
_RUNNING, _ENDED_WELL, _FAILED, _HELD = 0.0, 1.0, 2.0, 3.0
_STATES: Final[Mapping[Phase, float]] = {
    "Idle": _ENDED_WELL,
    "Succeeded": _ENDED_WELL,
    "Progressing": _RUNNING,
    "Promoting": _RUNNING,
    "Queued": _HELD,
    "Pending": _HELD,
    "Paused": _HELD,
    "WaitingPromotion": _HELD,
    "RollingBack": _FAILED,
    "Failed": _FAILED,
}


def override_metrics(objects: Cache) -> Iterator[Metric]:
    """Metrics of FlagOverrides."""
    active = GaugeMetricFamily(
        "flagstaff_override_active",
        "1 while a FlagOverride is in force.",
        labels=("namespace", "name", "flag_set", "flag"),
    )
    for resource in objects.of_kind(flagoverride.KIND):
        if FlagOverrideStatus.of(resource).state != ACTIVE:
            continue
        try:
            spec = parse_spec(FlagOverrideSpec, resource)
        except InvalidSpecError:
            continue
        active.add_metric((resource.namespace, resource.name, spec.flag_set_ref.name, spec.flag), 1.0)
    yield active


def rollout_metrics(objects: Cache) -> Iterator[Metric]:
    """Metrics of FlagRollouts, of those with a status."""
    state = GaugeMetricFamily(
        "flagstaff_rollout_status",
        "0 while a rollout goes on, 1 while there is none, 2 where it failed, 3 while it is held.",
        labels=("namespace", "name"),
    )
    share = GaugeMetricFamily(
        "flagstaff_rollout_share",
        "Percent of users who get the new definitions of a candidate, besides audiences.",
        labels=("namespace", "name", "candidate"),
    )
    value = GaugeMetricFamily(
        "flagstaff_rollout_metric_value",
        "The newest value of a rollout's metric; of tests the evidence.",
        labels=("namespace", "name", "candidate", "metric"),
    )
    for resource in objects.of_kind(flagrollout.KIND):
        status = FlagRolloutStatus.of(resource)
        if status.phase is None:
            continue
        key = (resource.namespace, resource.name)
        state.add_metric(key, _STATES[status.phase])
        for candidate in status.candidates:
            part = (*key, candidate.digest.removeprefix("sha256:")[:_DIGITS])
            share.add_metric(part, candidate.share or 0.0)
            for metric in candidate.metrics:
                if metric.value is not None:
                    value.add_metric((*part, metric.name), metric.value)
    yield state
    yield share
    yield value
