"""A rollout without a cluster: what people, evaluators and checks do, command by command, and what the state
machine makes of it. A trace is a text: commands, and below each what changed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import yaml

from controller.api.fields import read
from controller.api.flagrollout import ABORT, APPROVE, PAUSE, PROMOTE, RESUME, RETRY, FlagRolloutSpec
from controller.api.meta import ObjectKey
from controller.api.rollout_status import FlagRolloutStatus, MetricStatus, PromotedRevision, StepServed
from controller.rollouts.candidates import kept_keys
from controller.rollouts.decide import decide, due_of
from controller.rollouts.observation import Commit, Incompatibility, Observation
from controller.rollouts.rollout_ports import HookAnswer
from evaluator.flags.candidates import candidate_digest
from evaluator.host.times import parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.rollouts.observation import Decision

MONDAY: Final = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
SPEC: Final = """
flagSetRef: {name: checkout}
flags: ["*"]
steps:
  - {audience: {ends_with: [{var: email}, "@example.com"]}, minDuration: 10m}
  - {share: 1, minDuration: 10m}
  - {share: 10, minDuration: 30m}
  - {share: 50, minDuration: 1h}
"""
ERRORS: Final = {"name": "errors", "templateRef": {"name": "t"}, "thresholdRange": {"max": 0.01}}
_ANNOTATIONS: Final = {
    "approve": APPROVE, "promote": PROMOTE, "abort": ABORT, "resume": RESUME, "retry": RETRY, "pause": PAUSE,
}  # fmt: skip
_TICKS: Final = 40
"""Most decisions without time passing: more would be a loop."""


ROLLOUT: Final = ObjectKey("FlagRollout", "shop", "checkout")
DISABLED: Final = "disabled"
"""The promoted definition of a flag that Git disables."""


def definition_of(key: str, commit: str) -> str:
    """The digest of the definition that a commit gives a flag."""
    return hashlib.sha256(f"{key}={commit}".encode()).hexdigest()[:16]


def digest_of(commit: str, *keys: str) -> str:
    """The digest of a commit's candidate."""
    return candidate_digest({key: definition_of(key, commit) for key in keys or ("pay",)})


@dataclass
class RolloutWorld:
    """One FlagRollout `checkout`. A definition of a flag is named by the commit that it is of."""

    spec_text: dict[str, Any] = field(default_factory=lambda: yaml.safe_load(SPEC))
    now: datetime = MONDAY
    status: FlagRolloutStatus = field(default_factory=FlagRolloutStatus)
    promoted: dict[str, str] = field(default_factory=lambda: {"pay": "base", "hero": "base"})
    desired: dict[str, str] = field(default_factory=lambda: {"pay": "base", "hero": "base"})
    disabled: set[str] = field(default_factory=set)
    overrides: dict[str, str] = field(default_factory=dict)
    """The flag of each override in force, by its name."""
    served: StepServed | None = field(default_factory=lambda: StepServed(served=4, total=4))
    promotion_served: StepServed | None = None
    """The same while everybody gets a candidate, if it differs."""
    check: str = "pass"
    hooks: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    misfit: Incompatibility | None = None
    asked: list[str] = field(default_factory=list)
    """What webhooks were asked, in order."""
    due_in: float | None = 0.0
    sets: dict[str, dict[str, str]] = field(default_factory=dict)
    """The content of the shards that statuses name."""

    @property
    def spec(self) -> FlagRolloutSpec:
        return read(FlagRolloutSpec, self.spec_text)

    def observe(self) -> Observation:
        """What is so now, with the answers of all that is due."""
        observation = self._observe()
        asks = due_of(self.spec, self.status, observation, self.now)
        answers = {
            candidate.digest: {hook.name: self._answer(hook.name) for hook in due.hooks}
            for candidate, due in asks
        }
        metrics = {candidate.digest: tuple(self._measure()) for candidate, due in asks if due.metrics}
        self.asked += [name for named in answers.values() for name in named]
        return replace(observation, answers=answers, metrics=metrics)

    def _observe(self) -> Observation:
        spec, status = self.spec, self.status
        absent = self.promoted.keys() - self.desired.keys()
        kept = kept_keys(spec, status, absent, self.disabled, self.now)
        settled = {key: commit for key, commit in self.promoted.items() if key in self.desired or key in kept}
        for key, commit in self.desired.items():
            if key in self.disabled and key not in kept:
                settled[key] = DISABLED
            settled.setdefault(key, commit)
        changed = {
            key: commit
            for key, commit in self.desired.items()
            if key not in self.disabled and commit != settled[key]
        }
        hidden: dict[str, tuple[str, ...]] = {}
        for name, key in sorted(self.overrides.items()):
            hidden[key] = (*hidden.get(key, ()), name)
        promotions = {
            candidate.digest: self._revision(settled | {key: self.desired[key] for key in candidate.flags})
            for candidate in status.candidates
            if candidate.phase == "Promoting" and candidate.flags.keys() <= changed.keys()
        }
        return Observation(
            ROLLOUT,
            self._revision(settled),
            flags={key: definition_of(key, commit) for key, commit in changed.items()},
            commits={key: Commit(commit) for key, commit in changed.items()},
            promoted_definitions={
                key: definition_of(key, settled[key]) for key in {*changed, *hidden} if key in settled
            },
            absent=frozenset(absent & kept),
            disabled=frozenset(self.disabled),
            misfits={
                key: self.misfit for key in changed if self.misfit and f'"{key}"' in self.misfit.message
            },
            audiences=tuple(step.audience for step in spec.steps),
            overrides=hidden,
            served={
                one.digest: served
                for one in status.candidates
                if (served := (one.phase == "Promoting" and self.promotion_served) or self.served) is not None
            },
            promotions=promotions,
            annotations=self.annotations,
        )

    def _revision(self, promoted: dict[str, str]) -> PromotedRevision:
        digest = "sha256:" + hashlib.sha256(str(sorted(promoted.items())).encode()).hexdigest()
        self.sets[digest] = promoted
        return PromotedRevision(digest=digest, shard=f"promoted-{digest[7:19]}")

    def tick(self) -> Decision:
        """Decide once, and write the status."""
        decision = decide(self.spec, self.status, self.observe(), self.now)
        self.write(decision.status)
        self.due_in = decision.requeue_after
        return decision

    def write(self, status: FlagRolloutStatus) -> None:
        """What the API server stores, and what is read of it."""
        self.status = FlagRolloutStatus.model_validate(status.model_dump(by_alias=True, mode="json"))
        if self.status.promoted is not None:
            self.promoted = self.sets[self.status.promoted.digest]

    def _measure(self) -> Iterator[MetricStatus]:
        word, _, of = self.check.partition(" ")
        verdict = {"pass": "Pass", "fail": "Fail", "error": "Error", "none": "Inconclusive"}[word]
        value = {"pass": 0.001, "fail": 0.02}.get(word)
        for metric in self.spec.analysis.metrics:
            mine = verdict if of in {"", metric.name} else "Pass"
            yield MetricStatus.model_validate(
                {
                    "name": metric.name,
                    "verdict": mine,
                    "value": value if mine == verdict else 0.001,
                    "threshold": "at most 0.01",
                }
            )

    def _answer(self, name: str) -> HookAnswer:
        word = self.hooks.get(name, "pass")
        verdict = {"pass": "Pass", "fail": "Fail", "error": "Error"}[word]
        return HookAnswer(verdict, f"it answers {word}")  # type: ignore[arg-type] # one of the three

    # -- traces

    def run(self, command: str) -> list[str]:
        """Do what a command says, and return what changed."""
        word, _, rest = command.partition(" ")
        if word in {"wait", "every"}:
            return self._wait(rest)
        getattr(self, f"_{word}")(rest)
        return self.settle()

    def settle(self) -> list[str]:
        """Decide until only time changes something."""
        lines: list[str] = []
        for _ in range(_TICKS):
            lines += self._tick_lines()
            if self.due_in != 0.0:
                return lines
        raise AssertionError("it decides without end")

    def _tick_lines(self) -> list[str]:
        before = self.line
        decision = self.tick()
        lines = [f"{self._clock} {self.line}"] * (self.line != before)
        return lines + [f"    {event.reason}: {event.message}" for event in decision.events]

    @property
    def line(self) -> str:
        """The candidates; of several, each with its commit and its flags."""
        candidates = self.status.candidates
        if not candidates:
            return f"{self.status.phase or '-'} - 0%"
        texts = []
        for one in candidates:
            parts = [one.phase, one.step_text or "-", one.share_text or "0%", one.reason or ""]
            name = f"{one.revision}[{','.join(sorted(one.flags))}]: " if len(candidates) > 1 else ""
            texts.append(name + " ".join(filter(None, parts)))
        return " | ".join(texts)

    @property
    def _clock(self) -> str:
        return self.now.strftime("%a %H:%M:%S")

    def _wait(self, text: str) -> list[str]:
        seconds = parse_duration(text)
        assert seconds is not None, text
        end, lines = self.now + timedelta(seconds=seconds), []
        while self.due_in is not None and self.now + timedelta(seconds=self.due_in) <= end:
            self.now += timedelta(seconds=max(self.due_in, 0.0))
            lines += self.settle()
        self.now = end
        return lines + self.settle()

    def _new(self, _: str) -> None:
        """The rollout is created."""

    def _commit(self, text: str) -> None:
        """`A` changes the flag pay, `A hero pay` these flags."""
        name, *keys = text.split()
        self.desired = {**self.desired, **dict.fromkeys(keys or ["pay"], name)}

    def _delete(self, key: str) -> None:
        self.desired = {name: commit for name, commit in self.desired.items() if name != key}

    def _disable(self, key: str) -> None:
        self.disabled.add(key)

    def _enable(self, key: str) -> None:
        self.disabled.discard(key)

    def _override(self, text: str) -> None:
        """`stop pay`: the FlagOverride stop is in force for the flag pay."""
        name, _, key = text.partition(" ")
        self.overrides[name] = key

    def _end(self, name: str) -> None:
        self.overrides.pop(name, None)

    def _spec(self, text: str) -> None:
        self.spec_text = {**self.spec_text, **yaml.safe_load(text)}

    def _analysis(self, text: str) -> None:
        """Checks of one metric, unless the text has others."""
        self.spec_text = {**self.spec_text, "analysis": {"metrics": [ERRORS], **yaml.safe_load(text)}}

    def _at(self, text: str) -> None:
        """Begin at another time."""
        self.now = datetime.fromisoformat(text)

    def _served(self, text: str) -> None:
        served, _, total = text.partition("/")
        self.served = StepServed(served=int(served), total=int(total)) if total else None

    def _promotion(self, text: str) -> None:
        served, _, total = text.partition("/")
        self.promotion_served = StepServed(served=int(served), total=int(total))

    def _check(self, text: str) -> None:
        self.check = text

    def _hook(self, text: str) -> None:
        name, _, word = text.partition(" ")
        self.hooks[name] = word

    def _annotate(self, text: str) -> None:
        """`approve A/1`: of the candidate of commit A, or of a digest."""
        name, _, value = text.partition(" ")
        commit, slash, rest = value.partition("/")
        named = [one.digest for one in self.status.candidates if one.revision == commit]
        own = commit if name in {"retry", "pause"} else digest_of(commit)
        digest = named[0] if named else own
        self.annotations[_ANNOTATIONS[name]] = f"{digest}{slash}{rest}"

    def _remove(self, name: str) -> None:
        del self.annotations[_ANNOTATIONS[name]]

    def _unfit(self, text: str) -> None:
        reason, _, message = text.partition(" ")
        self.misfit = Incompatibility(reason, message) if reason else None

    def _clock_by(self, text: str) -> None:
        sign = -1 if text.startswith("-") else 1
        self.now += sign * timedelta(seconds=parse_duration(text.lstrip("-")) or 0.0)

    def _restart(self, _: str) -> None:
        """Another controller takes over: it knows the status alone."""
