"""Reads flags of Microsoft FeatureManagement, schema 2: appsettings or App Configuration. Pure.

Sources: https://github.com/microsoft/FeatureManagement, schema and samples. Where the libraries differ, as
the one for .NET evaluates. The user is the targeting key, and the groups are the attribute `Groups`, a list.
A feature with variants gives two flags: FEATURE, whether it is enabled, and FEATURE.variant, its value.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.importers.conditions import NEVER
from controller.importers.model import (
    ITEM,
    NEXT,
    TARGETING_KEY,
    All,
    Always,
    AnyItem,
    AnyOf,
    Arm,
    Condition,
    During,
    ImportedFlag,
    InShare,
    Not,
    OneOf,
    Outcome,
    Rule,
    Targeting,
    TargetingRule,
    UserHash,
    UserSplit,
)
from controller.importers.reading import (
    ImportReading,
    NoExactForm,
    SourceFile,
    UnreadableFile,
    arms_of_ranges,
    items,
    member,
    scalars,
    whole_weights,
)
from evaluator.flags.text import quote
from evaluator.host.times import parse_http_date, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_GROUPS: Final = "Groups"
_NOBODY: Final = Rule({"!": [{"var": TARGETING_KEY}]})
"""Whether there is no user, or one with an empty name."""
_ON: Final = ("on", "alwayson")
_OVERRIDES: Final = {"enabled": True, "disabled": False}


def read(files: list[SourceFile], reading: ImportReading) -> None:
    """Read flags. Raises UnreadableFile."""
    for file in files:
        content = file.content if isinstance(file.content, dict) else {}
        management = content.get("feature_management")
        if not isinstance(management, dict) or not isinstance(management.get("feature_flags"), list):
            older = "; flags in FeatureManagement are of schema 1" if "FeatureManagement" in content else ""
            raise UnreadableFile(f"{file.name} has no list feature_management.feature_flags{older}")
        for flag, place in items(management, "feature_flags", f"{file.name}:feature_management"):
            key = flag.get("id")
            with reading.one(key if isinstance(key, str) else "", place):
                for part in _flags(flag, place, reading):
                    reading.add(part)


def _flags(flag: dict[str, Any], place: str, reading: ImportReading) -> list[ImportedFlag]:
    key = member(flag, "id", str, place, "")
    if not key:
        raise NoExactForm(place, "it has no id")
    feature = _Feature(key, flag, place, reading)
    variants: dict[str, tuple[dict[str, Any], str]] = {}
    for variant, at in items(flag, "variants", place):
        variants.setdefault(_name(variant, "name", at), (variant, at))
    overrides = {name: _override(*variant) for name, variant in variants.items()}
    metadata = scalars({"description": flag.get("description"), "displayName": flag.get("display_name")})
    if member(flag, "telemetry", dict, place, {}).get("enabled"):
        reading.remark(f"{place}.telemetry", "evaluations are not reported to Azure")

    def switch(variant: str | None, enabled: bool) -> Arm:
        override = overrides.get(variant or "")
        return _switch(enabled if override is None else override)

    def configuration(variant: str | None, _: bool) -> Arm:
        return variant if variant in variants else None

    environment = reading.options.environment
    # No variant overrides the switch of the feature itself.
    overridden = feature.is_on() and any(override is not None for override in overrides.values())
    enabled = feature.targeting(switch) if overridden else feature.switch_alone()
    flags = [ImportedFlag(key, place, {"on": True, "off": False}, {environment: enabled}, metadata)]
    if variants:
        targeting = {environment: feature.targeting(configuration)}
        flags.append(ImportedFlag(f"{key}.variant", place, _values(variants), targeting, metadata))
    return flags


def _values(variants: Mapping[str, tuple[dict[str, Any], str]]) -> dict[str, Any]:
    """The configurations by name; the names where no variant has one."""
    if not any(variant.get("configuration_value") is not None for variant, _ in variants.values()):
        return {name: name for name in variants}
    for name, (variant, place) in variants.items():
        if variant.get("configuration_value") is None:
            message = f"the variant {quote(name)} has no configuration_value, unlike others; give it one"
            raise NoExactForm(place, message)
    return {name: variant["configuration_value"] for name, (variant, _) in variants.items()}


def _override(variant: dict[str, Any], place: str) -> bool | None:
    if variant.get("configuration_reference") is not None:
        raise NoExactForm(place, "its configuration is elsewhere, by configuration_reference; write it here")
    given = member(variant, "status_override", str, place, "none").lower()
    if given not in ("none", *_OVERRIDES):
        raise NoExactForm(place, f"the status_override {quote(given)} is none of Enabled, Disabled and None")
    return _OVERRIDES.get(given)


@dataclass(frozen=True, slots=True)
class _Feature:
    key: str
    flag: dict[str, Any]
    place: str
    reading: ImportReading

    def is_on(self) -> bool:
        """The switch of the feature: a boolean, or one as a text."""
        given = self.flag.get("enabled", False)
        if str(given).lower() not in ("true", "false"):
            raise NoExactForm(f"{self.place}.enabled", "it is neither true nor false")
        return str(given).lower() == "true"

    def switch_alone(self) -> Targeting:
        """Whether the feature is enabled, where no variant overrides that."""
        return Targeting(_switch(False), (TargetingRule(self._enabling_condition(), _switch(True)),))

    def targeting(self, arm_of: Callable[[str | None, bool], Arm]) -> Targeting:
        """What the allocation gives; `arm_of` is given a variant's name, and whether filters enable it."""
        place = f"{self.place}.allocation"
        allocation = member(self.flag, "allocation", dict, self.place, {})
        disabled = arm_of(member(allocation, "default_when_disabled", str, place), False)
        default = arm_of(member(allocation, "default_when_enabled", str, place), True)
        rules = [TargetingRule(Not(self._enabling_condition()), disabled)]
        names = [variant.get("name") for variant, _ in items(self.flag, "variants", self.place)]

        def arm_of_part(part: dict[str, Any]) -> Arm:
            name = part.get("variant")
            return arm_of(name, True) if isinstance(name, str) and name in names else default

        for part, at in items(allocation, "user", place):
            rules.append(TargetingRule(OneOf(TARGETING_KEY, _texts(part, "users", at)), arm_of_part(part)))
        for part, at in items(allocation, "group", place):
            rules.append(TargetingRule(_in_groups(_texts(part, "groups", at)), arm_of_part(part)))
        return Targeting(self._percentiles(allocation, place, arm_of_part, default), tuple(rules))

    def _percentiles(
        self,
        allocation: dict[str, Any],
        place: str,
        arm_of_part: Callable[[dict[str, Any]], Arm],
        default: Arm,
    ) -> Outcome:
        """The first range that has the user decides; who is in none gets the default."""
        ranges = []
        for part, at in items(allocation, "percentile", place):
            start, end = _percentage(part, "from", at), _percentage(part, "to", at)
            if start > end:
                raise NoExactForm(at, "its percentiles end before they start")
            ranges.append((start, end, arm_of_part(part)))
        if not ranges:
            return default
        seed = member(allocation, "seed", str, place, f"allocation\n{self.key}")
        arms = [
            (default if arm is NEXT else arm, weight) for arm, weight in arms_of_ranges(ranges, 100, place)
        ]
        # All without a user are one user.
        nobody = _percentile(f"\n{seed}")
        arm = next((arm for start, end, arm in ranges if start <= nobody < end), default)
        return UserSplit(tuple(arms), UserHash(TARGETING_KEY, seed), arm)

    def _enabling_condition(self) -> Condition:
        """Whether the switch and the filters enable the feature."""
        if not self.is_on():
            return NEVER
        conditions = member(self.flag, "conditions", dict, self.place, {})
        place = f"{self.place}.conditions"
        filters = tuple(self._filter(*part) for part in items(conditions, "client_filters", place))
        requirement = member(conditions, "requirement_type", str, place, "Any")
        if requirement.lower() not in ("any", "all"):
            raise NoExactForm(place, f"the requirement_type {quote(requirement)} is neither Any nor All")
        if not filters:
            return Always()
        return All(filters) if requirement.lower() == "all" else AnyOf(filters)

    def _filter(self, part: dict[str, Any], place: str) -> Condition:
        given = _name(part, "name", place)
        name = given.lower().removeprefix("microsoft.")
        parameters = _lower(member(part, "parameters", dict, place, {}))
        at = f"{place}.parameters"
        if given.lower() in _ON:
            return Always()
        if name == "timewindow":
            return _time_window(parameters, at)
        if name == "targeting":
            return self._audience(parameters, at)
        if name == "percentage":
            message = "each call is on or off at random, not each user"
            self.reading.approximate("random-percentage", at, message)
            return self._share(_percentage(parameters, "value", at, 0), at, None)
        raise NoExactForm(
            place, f"what the filter {quote(given)} does is in the application; write a rule by hand"
        )

    def _audience(self, parameters: dict[str, Any], place: str) -> Condition:
        at = f"{place}.Audience"
        audience = member(parameters, "audience", dict, place)
        if audience is None:
            raise NoExactForm(place, "a targeting filter without an Audience")
        exclusion = member(audience, "exclusion", dict, at, {})
        excluded = (
            OneOf(TARGETING_KEY, _texts(exclusion, "users", f"{at}.exclusion")),
            _in_groups(_texts(exclusion, "groups", f"{at}.exclusion")),
        )
        groups: dict[str, Condition] = {}
        for group, group_at in items(audience, "groups", at):
            name = _name(group, "name", group_at)
            share = self._share(_percentage(group, "rolloutpercentage", group_at, 0), group_at, name)
            groups.setdefault(name, All((_in_groups((name,)), share)))
        targeted = (
            OneOf(TARGETING_KEY, _texts(audience, "users", at)),
            *groups.values(),
            self._share(_percentage(audience, "defaultrolloutpercentage", at, 0), at, ""),
        )
        return All((Not(AnyOf(excluded)), AnyOf(targeted)))

    def _share(self, percentage: float, place: str, group: str | None) -> Condition:
        """Whether the user is within the percentage, by a hash of the user, the feature and the group. All
        without a user are one user. None: by chance.
        """
        if percentage in (0, 100):
            return Always(percentage == 100)
        hashed = f"\n{self.key}" + (f"\n{group}" if group else "")
        # Both flags of a feature with variants divide users alike.
        bucket = UserHash(TARGETING_KEY, hashed) if group or "variants" in self.flag else UserHash()
        weights = whole_weights([percentage, 100 - percentage], place)
        share = InShare(bucket, weights[0], sum(weights))
        if group is None:
            return share
        return AnyOf((share, All((_NOBODY, Always(_percentile(hashed) < percentage)))))


def _switch(enabled: bool) -> str:
    return "on" if enabled else "off"


def _time_window(parameters: dict[str, Any], place: str) -> Condition:
    if parameters.get("recurrence"):
        raise NoExactForm(place, "the time window recurs, which has no form here; write the times by hand")
    start, end = _time(parameters, "start", place), _time(parameters, "end", place)
    return NEVER if start is None and end is None else During(start, end)


def _time(parameters: dict[str, Any], name: str, place: str) -> int | None:
    """The first whole second at or after a time, as in `Tue, 27 Jun 2023 06:00:00 GMT` or of ISO 8601."""
    text = member(parameters, name, str, place, "")
    if not text:
        return None
    time = parse_time(text) or parse_http_date(text)
    if time is not None:
        return math.ceil(time.timestamp())
    raise NoExactForm(
        f"{place}.{name}", f"{quote(text)} is no time with a time zone; write it as in RFC 1123 or ISO 8601"
    )


def _percentile(hashed: str) -> float:
    """From 0 to 100, where the vendor's hash puts a text."""
    digest = hashlib.sha256(hashed.encode(errors="replace")).digest()
    return int.from_bytes(digest[:4], "little") / (2**32 - 1) * 100


def _percentage(value: dict[str, Any], name: str, place: str, default: float | None = None) -> float:
    given = member(value, name, (int, float, str), place, default)
    try:
        number = float(given)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 <= number <= 100:
        raise NoExactForm(f"{place}.{name}", "it is no number from 0 to 100")
    return number


def _name(value: dict[str, Any], field: str, place: str) -> str:
    name = member(value, field, str, place, "")
    if not name:
        raise NoExactForm(place, f"it has no {field}")
    return str(name)


def _texts(value: dict[str, Any], name: str, place: str) -> tuple[str, ...]:
    texts = member(value, name, list, place, [])
    if not all(isinstance(text, str) for text in texts):
        raise NoExactForm(f"{place}.{name}", "not all of them are texts")
    return tuple(texts)


def _in_groups(groups: Iterable[str]) -> Condition:
    return AnyItem(_GROUPS, OneOf(ITEM, tuple(groups)))


def _lower(value: Any) -> Any:
    """Names of parameters in lower case: they may be in any."""
    if isinstance(value, dict):
        return {name.lower(): _lower(item) for name, item in value.items()}
    return [_lower(item) for item in value] if isinstance(value, list) else value
