"""What a FlagSource requires of a new revision: signatures, and descent from the one before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api.objects.meta import lets_through
from controller.api.parsing.references import is_older
from controller.api.sources.verification import TAG_MODES
from controller.runtime.reconciling.setbacks import Stalled
from controller.runtime.user_text.secret_texts import SecretTexts
from controller.sources.backend import Accepted, Revision, Unverified
from controller.sources.git.commit_verification import (
    LIMIT,
    NOT_ALLOWED,
    REWRITTEN,
    TAG_REFUSED,
    Question,
    Rule,
    verify_commit,
)
from controller.sources.trust_advice import OF_OPTIONS, TrustAdvice, on_command_line
from controller.sources.verification.keys import Keys, epoch, read_keys

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from controller.sources.deadline import LimitedTasks, ThreadTasks
    from controller.sources.git_cli.git_references import Reference
    from controller.sources.verification import Signer

_HEADS: Final = ("HEAD", "TagAndHEAD", "EveryCommit")


@dataclass(frozen=True, slots=True)
class SignaturePolicy:
    """The trusted keys, and what they must have signed."""

    advice: TrustAdvice
    mode: str = ""
    """As `spec.verify.mode`; empty: nothing need be signed."""
    keys: Keys | None = None
    epoch: str = ""
    rules: tuple[Rule, ...] = ()

    async def verify(
        self,
        tasks: LimitedTasks | ThreadTasks,
        path: Path,
        reference: Reference,
        revision: Revision,
        accepted: Accepted,
    ) -> Signer | None:
        """Return who signed `revision` of the repository at `path`, if anybody must. Raises Unverified, or
        Stalled (HistoryRewritten), and as `verify_commit` does.
        """
        question = self._question(reference, revision, accepted)
        try:
            return await tasks.run(f"verifying commit {question.commit}", verify_commit, path, question)
        except Stalled as refused:
            if refused.reason == REWRITTEN:
                raise self._rewrite_refusal(refused.message, question.commit) from None
            # What is too much for these keys and rules is not too much for others that read the mirror.
            advice = self._advice(refused.reason, question.commit)
            raise Unverified(refused.reason, f"{refused.message}{advice}") from refused

    def _question(self, reference: Reference, revision: Revision, accepted: Accepted) -> Question:
        commit = revision.digest.removeprefix("sha1:")
        name, _, before = accepted.revision.rpartition("@")
        let_through = lets_through(accepted.let_through, str(revision))
        anywhere = False
        if reference.follows_versions and name and name != revision.name and not let_through:
            if is_older(revision.name, name):
                message = f"version {revision.name} is older than {name}, which was accepted last"
                raise self._rewrite_refusal(message, commit)
            # Versions are ordered by their numbers: a later one may come from another branch. But the name of
            # a tag that is not verified is anybody's who may push.
            anywhere = self.keys is None or self.mode in TAG_MODES
        return Question(
            commit,
            (reference.full_name(revision) or "") if self.mode in TAG_MODES else "",
            before.removeprefix("sha1:"),
            let_through=let_through,
            fast_forward=not anywhere,
            head=self.mode in _HEADS,
            every=self.mode == "EveryCommit",
            keys=self.keys,
            rules=self.rules,
        )

    def _rewrite_refusal(self, message: str, commit: str) -> Stalled:
        return Stalled(REWRITTEN, f"{message}; to accept it: {self.advice.accept}{commit}")

    def _advice(self, reason: str, commit: str) -> str:
        if reason == LIMIT:
            alone = self.mode == "EveryCommit"
            return f"; to accept it without those before it: {self.advice.accept}{commit}" if alone else ""
        if reason == NOT_ALLOWED:
            return (
                "; have them sign a commit or a merge that makes it so, or revert it; see spec.verify.rules"
            )
        how = "git tag -s" if reason == TAG_REFUSED else "git commit -S"
        return f"; sign it with a trusted key ({how}), or {self.advice.add_key}"


def policy_of_keys(content: Mapping[str, bytes]) -> SignaturePolicy:
    """Trusts the keys of a command line, by their files' names, for the newest commit. Raises Stalled."""
    keys = read_keys(SecretTexts(OF_OPTIONS, content))
    return SignaturePolicy(on_command_line(keys.names), "HEAD", keys, epoch({"mode": "HEAD"}, content))
