"""AdmissionReview in, AdmissionReview out."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from controller.pods import installation
from controller.pods.webhooks import INJECTED, REFUSED, UNCHANGED, InvalidReviewError, answer
from tests.worlds.pods import KNOWN, OPTIONS, changes_of, inject_pod, pod


def review(given: object) -> dict[str, Any]:
    return {"request": {"uid": "u-1", "namespace": "shop", "object": given}}


def test_a_pod_that_asks_gets_a_patch() -> None:
    outcome, reviewed = answer(review(pod()), OPTIONS, KNOWN)
    response = reviewed["response"]
    assert (outcome, reviewed["apiVersion"], reviewed["kind"]) == (
        INJECTED,
        "admission.k8s.io/v1",
        "AdmissionReview",
    )
    assert (response["uid"], response["allowed"], response["patchType"]) == ("u-1", True, "JSONPatch")
    assert json.loads(base64.b64decode(response["patch"])) == changes_of(pod()).patch


@pytest.mark.parametrize("given", [pod({installation.ENABLED: "false"}), inject_pod(pod())])
def test_what_asks_for_nothing_or_has_it_is_let_through(given: dict[str, Any]) -> None:
    outcome, reviewed = answer(review(given), OPTIONS, KNOWN)
    assert (outcome, reviewed["response"]) == (UNCHANGED, {"uid": "u-1", "allowed": True})


def test_a_refusal_says_why() -> None:
    outcome, reviewed = answer(review(pod({installation.PORT: "no"})), OPTIONS, KNOWN)
    assert (outcome, reviewed["response"]["allowed"]) == (REFUSED, False)
    assert reviewed["response"]["status"] == {
        "code": 422, "reason": "Invalid",
        "message": "annotation flagstaff.dev/port: is 'no'; write a port from 1 to 65535",
    }  # fmt: skip


@pytest.mark.parametrize("given", [None, [], {}, {"request": {}}, review({"kind": "Job"}), review(None)])
def test_what_is_no_review_of_a_pod_is_refused_whole(given: object) -> None:
    with pytest.raises(InvalidReviewError):
        answer(given, OPTIONS, KNOWN)
