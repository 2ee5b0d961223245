"""What is done to documents on their way to a flag set: variables, manifests, decryption, patches."""

from __future__ import annotations

from typing import Final

from controller.flagsets.compose import compose, provenance_of
from controller.flagsets.patches import Patch
from controller.flagsets.preparation import Steps
from controller.flagsets.sops import Decryption
from controller.flagsets.substitution import Variables
from tests.fuzz.target import Target, Wrong

_HIDDEN: Final = "gR7vQ2"
_WORDS: Final = {"A": "on", "B": "true", "C": "12.5", "D": '"3"', "T": _HIDDEN}
_STEPS: Final = Steps(Decryption(lambda _kind, _message: b"k" * 32), Variables(_WORDS, frozenset("T")))


def check_build(content: bytes) -> None:
    """A document, and after a NUL a patch: all of it is judged, never raised, and no message and no flag
    without the mark has the value of a Secret.
    """
    document, _, patch = content.partition(b"\0")
    patches = [Patch("patch", patch.decode(errors="replace"))] if patch else []
    for name in ("a.json", "a.yaml"):
        made = compose(
            {name: document},
            [name],
            provenance=provenance_of("r"),
            previous=None,
            lenient=True,
            steps=_STEPS,
            patches=patches,
        )
        if _HIDDEN.encode() in content:
            continue
        if _HIDDEN in repr(made.problems):
            raise Wrong("a message shows a secret")
        for flag in made.flag_set.flags.values():
            if _HIDDEN in repr(flag) and "flagstaff.dev/secret" not in flag.metadata:
                raise Wrong("a flag with a secret is not marked")


TARGETS: Final = {
    "built": Target(
        check_build,
        words=(
            "${T}", "${A:=b}", "$${", "${#A}", "${A^^}", "${C:1:", "${A##*", "${A%[^", "${A//", "${A/#",
            "${A:=${T}}", "\0", "apiVersion: core.openfeature.dev/v1\n", "kind: FeatureFlag\n", "spec:\n",
            " flagSpec: ", " featureFlagSpec: |\n", "sops: {mac: ",
            "ENC[AES256_GCM,data:,iv:AA==,tag:AA==,type:int]", "- {op: add, path: /flags/a",
            "- {op: copy, from: /flags/a", "{op: test, path: ", "/$evaluators/", "/metadata/", "value: ",
            "flags:\n", "variants: ",
        ),
    ),
}  # fmt: skip
