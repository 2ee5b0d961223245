"""Tries one object that pods name in an injection, with a pod that asks for nothing else. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from controller.api.openfeature import featureflagsource, inprocessconfiguration
from controller.migration.finding import Fate, Finding
from controller.pods.injection.pod_injection import inject
from controller.pods.settings import well_known
from controller.pods.settings.installation import FLAG_SETS, FlagSetFound, Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from controller.migration.finding import Path
    from controller.pods.settings.installation import Options

_ANNOTATIONS: Final = {
    featureflagsource.KIND: well_known.SOURCES,
    inprocessconfiguration.KIND: well_known.IN_PROCESS,
}
_NEEDED: Final[Mapping[str, dict[str, Any]]] = {
    featureflagsource.KIND: {"sources": [{"source": "flags"}]},
    inprocessconfiguration.KIND: {"selector": "flags"},
}
"""The least that is injected, by kind."""
_NUMBERED: Final = re.compile(r"sources[\[.](\d+)")
"""The source that a refusal is about."""


@dataclass(frozen=True, slots=True)
class _Only:
    """Implements injection's `Known`: every object has this spec."""

    given: Mapping[str, Any]

    def refer(
        self, reader: str, kinds: Sequence[str], namespace: str, name: str
    ) -> tuple[tuple[str, ...], str]:
        # Each field's own finding reports references to other namespaces.
        del reader, namespace, name
        return tuple(kinds), ""

    def flag_set(self, namespace: str, name: str, kinds: Sequence[str] = FLAG_SETS) -> FlagSetFound:
        del namespace, kinds
        return FlagSetFound(name)

    def spec(self, kind: str, namespace: str, name: str) -> Mapping[str, Any]:
        del kind, namespace, name
        return self.given


@dataclass(frozen=True, slots=True)
class Trial:
    """The trial of a FeatureFlagSource or an InProcessConfiguration."""

    kind: str
    namespace: str
    name: str
    options: Options

    def judge(self, findings_of_fields: Iterable[Finding], spec: Mapping[str, Any]) -> list[Finding]:
        """The findings of each field of `spec`, made to agree with what is refused and warned of."""
        findings = [self._with_warning(finding, spec) for finding in findings_of_fields]
        for path, text in self._refusals(spec):
            refused = [finding for finding in findings if finding.fate is Fate.REFUSED and len(path) > 1]
            if any(finding.path[: len(path)] == path for finding in refused):
                continue
            broken = next((finding.broken for finding in findings if finding.path == path), "")
            findings = [finding for finding in findings if finding.path != path]
            findings.append(Finding(Fate.REFUSED, path, text, broken))
        return findings

    def _with_warning(self, finding: Finding, spec: Mapping[str, Any]) -> Finding:
        field, needed = finding.path[-1], _NEEDED[self.kind]
        if finding.fate is not Fate.KEPT or len(finding.path) != 2 or field in needed:
            return finding
        warnings = self._try_pod({**needed, str(field): spec[str(field)]})[1]
        return replace(finding, fate=Fate.IGNORED, message="; ".join(warnings)) if warnings else finding

    def _refusals(self, spec: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """(field, why) of each refusal: without the field there is another refusal, or none."""
        needed, rest = _NEEDED[self.kind], dict(spec)
        while refusal := self._try_pod(rest)[0]:
            for field in sorted(rest, key=lambda name: name in needed):
                path, without = self._without(rest, field, refusal)
                if self._try_pod(without)[0] != refusal:
                    break
            else:
                yield ("spec",), refusal
                return
            alone = self._try_pod({**needed, field: rest[field]})[0]
            yield path, alone or refusal
            rest = without

    def _without(self, spec: Mapping[str, Any], field: str, refusal: str) -> tuple[Path, dict[str, Any]]:
        """(the path of what is left out, the rest of `spec`); what is needed is replaced."""
        value, needed = spec[field], _NEEDED[self.kind]
        if field not in needed:
            return ("spec", field), {name: other for name, other in spec.items() if name != field}
        numbered = _NUMBERED.search(refusal) if isinstance(value, list) else None
        if numbered is None:
            return ("spec", field), {**spec, field: needed[field]}
        number = int(numbered[1])
        return ("spec", field, number), {
            **spec,
            field: [*value[:number], *needed[field], *value[number + 1 :]],
        }

    def _try_pod(self, spec: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        """(why a pod that names the object is refused, empty where it is not; warnings)."""
        annotations = {well_known.ENABLED: "true", _ANNOTATIONS[self.kind]: self.name}
        pod = {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "app"}]}}
        try:
            changes = inject(pod, self.namespace, self.options, _Only(spec))
        except Refused as refusal:
            return str(refusal), ()
        return "", () if changes is None else tuple(changes.warnings)
