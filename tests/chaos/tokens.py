"""Tokens of the evaluators' pods, in files, as a kubelet keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.cluster.test_evaluator_end import AUDIENCE
from tests.cluster.tokens import sign_token

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.spines import Spine

_ACCOUNT: Final = "default"
_EXPIRED: Final = -60.0


class Tokens:
    """Of pods that run as the namespace's own account, which may read its flag sets."""

    def __init__(self, spine: Spine, folder: Path) -> None:
        self._spine, self._folder = spine, folder
        self._expired = ""

    def file(self, pod: str) -> Path:
        """Where an evaluator reads its token."""
        return self._folder / f"{pod}.token"

    def grant(self) -> None:
        """Let the account read, and keep a token of it that was good once."""
        make, who = self._spine.kubectl, f"--serviceaccount={self._spine.name}:{_ACCOUNT}"
        make("create", "serviceaccount", _ACCOUNT, check=False)
        make(
            "create",
            "role",
            "reader",
            "--verb=get",
            "--resource=featureflagconfigurations.core.openfeature.dev",
        )
        make("create", "rolebinding", "reader", "--role=reader", who)
        self._expired = sign_token(self._spine.plane, self._spine.name, _ACCOUNT, _EXPIRED)

    def rotate(self, pod: str) -> bool:
        """Write a new token; False where the API server gives none."""
        words = ("--audience", AUDIENCE, "--bound-object-kind", "Pod", "--bound-object-name", pod)
        try:
            fresh = self._spine.kubectl("create", "token", _ACCOUNT, "--request-timeout=5s", *words)
        except RuntimeError:
            return False
        self._write(pod, fresh.strip())
        return True

    def expire(self, pod: str) -> None:
        """As where no kubelet ran for too long."""
        self._write(pod, self._expired)

    def _write(self, pod: str, token: str) -> None:
        fresh = self._folder / f"{pod}.token.new"
        fresh.write_text(token)
        fresh.replace(self.file(pod))
