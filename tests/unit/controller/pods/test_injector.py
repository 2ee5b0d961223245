"""The webhook's answers, over what the controller knows."""

from __future__ import annotations

import base64
import json
from collections import Counter
from typing import Any

import pytest
import yaml

from controller.api.meta import Resource
from controller.pods import installation
from controller.pods.installation import Options
from controller.pods.known_objects import KnownObjects
from controller.pods.webhooks import Injector
from controller.runtime.cache import Cache
from evaluator.http.messages import Response
from tests.worlds.objects import thing
from tests.worlds.pods import ask_webhook, pod


class Webhook:
    def __init__(
        self, *objects: Resource, namespaces: tuple[str, ...] = (), everywhere: bool = False
    ) -> None:
        self.objects = Cache()
        for each in objects:
            self.objects.learn(each)
        self.ready = True
        self.outcomes: Counter[str] = Counter()
        self.refused: list[tuple[str, str]] = []
        self.injector = Injector(
            KnownObjects(self.objects, namespaces, everywhere),
            Options(),
            lambda: self.ready,
            lambda outcome: self.outcomes.update((outcome,)),
            lambda request, message: self.refused.append((request["uid"], message)),
        )

    def post(self, content: Any) -> Response:
        answer = ask_webhook(self.injector.routes(), "/inject", content)
        assert isinstance(answer, Response)
        return answer

    def review(
        self, name: str | None = "checkout", source: str | None = None, **annotations: str
    ) -> dict[str, Any]:
        asks = pod({installation.FLAG_SET: name, installation.SOURCES: source, **annotations})
        given = {"uid": "u", "namespace": "shop", "object": asks}
        answer = self.post({"request": given})
        assert answer.status == 200
        response: dict[str, Any] = json.loads(answer.body)["response"]
        return response


def injected_annotations(response: dict[str, Any]) -> dict[str, str]:
    patch = json.loads(base64.b64decode(response["patch"]))
    annotation = next(each["value"] for each in patch if each["path"].endswith("injected"))
    found: dict[str, str] = json.loads(annotation)
    return found


APPLIED = {"lastAppliedRevision": "main@sha1:1"}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (thing("FlagSet", "checkout", spec={"target": {"name": "flags"}}, status=APPLIED),
         ("shop/flags", "FlagSet/checkout", "main@sha1:1")),
        (thing("FlagSet", "checkout", spec={"target": None}), ("shop/checkout", "FlagSet/checkout", None)),
        (thing("FeatureFlagConfiguration", "checkout", status={"revision": "main@sha1:2"}),
         ("shop/checkout", "FeatureFlagConfiguration/checkout", "main@sha1:2")),
        (thing("FeatureFlag", "checkout"), ("shop/checkout", "FeatureFlag/checkout", None)),
    ],
)  # fmt: skip
def test_a_name_means_the_first_kind_that_has_it(
    found: Resource, expected: tuple[str, str, str | None]
) -> None:
    webhook = Webhook(found)
    answer = injected_annotations(webhook.review())
    assert (answer["flagSet"], answer["from"], answer.get("revision")) == expected
    assert webhook.outcomes == {"injected": 1}


def test_a_name_that_means_nothing_is_refused_with_what_is_near() -> None:
    webhook = Webhook(thing("FlagSet", "checkout"))
    answer = webhook.review("chekout")
    assert answer["allowed"] is False
    assert answer["status"]["message"].endswith("correct the name (did you mean checkout?)")
    assert webhook.review("search")["status"]["message"].endswith("search; create it, or correct the name")
    assert webhook.outcomes == {"refused": 2}
    assert webhook.refused[0] == ("u", answer["status"]["message"])


def test_a_feature_flag_source_is_found_or_missed_by_name() -> None:
    webhook = Webhook(thing("FeatureFlagSource", "flags", spec={"sources": [{"source": "checkout"}]}))
    assert injected_annotations(webhook.review(None, "flags"))["flagSet"] == "shop/checkout"
    answer = webhook.review(None, "flag")
    assert answer["status"]["message"] == (
        "annotation openfeature.dev/featureflagsource: namespace shop has no FeatureFlagSource flag; "
        "create it, or correct the name (did you mean flags?)"
    )


@pytest.mark.parametrize(
    ("annotation", "missing"),
    [
        (installation.OLD_SOURCES, "FeatureFlagSource"),
        (installation.OLD_FLAGS, "FeatureFlagConfiguration or FeatureFlag"),
        (installation.IN_PROCESS, "InProcessConfiguration"),
    ],
)
def test_a_refusal_names_the_annotation_that_the_pod_has(annotation: str, missing: str) -> None:
    webhook = Webhook()
    assert webhook.review(None, **{annotation: "flag"})["status"]["message"] == (
        f"annotation {annotation}: namespace shop has no {missing} flag; create it, or correct the name"
    )
    wrong = webhook.review(None, **{annotation: "A flag"})["status"]["message"]
    assert wrong.startswith(f"annotation {annotation}: 'A flag' is no object's name")


def test_a_namespace_that_the_controller_does_not_work_in_is_refused() -> None:
    answer = Webhook(namespaces=("team",)).review()
    assert answer["status"]["message"].startswith("namespace shop: the controller works in team alone")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"request":{}}', b"[" * 5000])
def test_what_is_no_review_is_400(content: bytes) -> None:
    assert Webhook().post(content).status == 400


def test_before_all_is_known_no_request_is_answered() -> None:
    webhook = Webhook()
    webhook.ready = False
    assert webhook.post(b"{}").status == 503


SHARED: dict[str, Any] = {
    "FlagSet": {"target": {"name": "flags"}},
    "FeatureFlagConfiguration": {},
    "FeatureFlagSource": {"sources": [{"source": "mine"}]},
}


def elsewhere(kind: str) -> Resource:
    return thing(kind, "shared", SHARED[kind], namespace="platform")


def grant(*to: str, reader: str = "shop", name: str | None = "shared") -> Resource:
    groups = {"FlagSet": "flagstaff.dev"}
    entries = [{"group": groups.get(kind, "core.openfeature.dev"), "kind": kind} for kind in to]
    spec = {
        "from": [{"group": "", "kind": "Pod", "namespace": reader}],
        "to": [each | ({"name": name} if name else {}) for each in entries],
    }
    return thing("FlagGrant", "g", spec, namespace="platform")


@pytest.mark.parametrize(
    ("given", "selector"),
    [
        (grant("FlagSet"), "platform/flags"),
        (grant("FlagSet", name=None), "platform/flags"),
        # The FlagSet comes first, but is not granted.
        (grant("FeatureFlagConfiguration"), "platform/shared"),
        (grant("FeatureFlag"), None),
        (grant("FlagSet", reader="other"), None),
        (grant("FlagSet", name="x"), None),
        (grant("FeatureFlagSource"), None),
    ],
)
def test_a_flag_set_of_another_namespace_needs_a_grant_there(given: Resource, selector: str | None) -> None:
    webhook = Webhook(elsewhere("FlagSet"), elsewhere("FeatureFlagConfiguration"), given)
    response = webhook.review("platform/shared")
    assert response["allowed"] is bool(selector)
    if selector:
        assert injected_annotations(response)["flagSet"] == selector


def test_the_refusal_shows_the_grant_to_write_and_not_which_objects_exist() -> None:
    there, empty = Webhook(elsewhere("FlagSet")), Webhook()
    message = there.review("platform/shared")["status"]["message"]
    assert message == empty.review("platform/shared")["status"]["message"]
    assert message.startswith(
        "annotation flagstaff.dev/flagset: FlagSet shared is in namespace platform, where no FlagGrant lets "
        "pods of shop refer to it; the owner of that namespace may apply: {"
    )
    written = yaml.safe_load(message.partition("may apply: ")[2])
    there.objects.learn(Resource.of(written))
    assert there.review("platform/shared")["allowed"]


def test_a_source_of_another_namespace_needs_a_grant_and_names_flag_sets_of_the_pods_own() -> None:
    webhook = Webhook(elsewhere("FeatureFlagSource"))
    assert not webhook.review(None, "platform/shared")["allowed"]
    webhook.objects.learn(grant("FeatureFlagSource"))
    found = injected_annotations(webhook.review(None, "platform/shared"))
    assert (found["from"], found["flagSet"]) == ("FeatureFlagSource/platform/shared", "shop/mine")


def test_a_flag_set_that_a_source_names_elsewhere_needs_a_grant_too() -> None:
    given = thing("FeatureFlagSource", "mine", spec={"sources": [{"source": "platform/shared"}]})
    webhook = Webhook(given)
    message = webhook.review(None, "mine")["status"]["message"]
    assert (
        "sources[0]: FeatureFlagConfiguration shared is in namespace platform, where no FlagGrant" in message
    )
    webhook.objects.learn(grant("FeatureFlag"))
    assert injected_annotations(webhook.review(None, "mine"))["flagSet"] == "platform/shared"


def test_as_with_the_operator_all_may_be_referred_to_and_each_is_warned_of() -> None:
    webhook = Webhook(elsewhere("FlagSet"), everywhere=True)
    response = webhook.review("platform/shared")
    assert injected_annotations(response)["flagSet"] == "platform/flags"
    (warning,) = response["warnings"]
    assert "may apply: {apiVersion: flagstaff.dev/v1beta1, kind: FlagGrant" in warning
    webhook.objects.learn(grant("FlagSet"))
    assert "warnings" not in webhook.review("platform/shared")


@pytest.mark.parametrize("name", ["/checkout", "a/b/c", "Platform/shared", "platform/"])
def test_what_names_no_namespace_is_refused(name: str) -> None:
    assert "is no object's name" in Webhook().review(name)["status"]["message"]


def test_the_observer_of_refusals_receives_refusals_only() -> None:
    webhook = Webhook(thing("FeatureFlag", "checkout"))
    webhook.review()
    assert webhook.refused == []
    response = webhook.review("other")
    assert webhook.refused == [("u", response["status"]["message"])]
