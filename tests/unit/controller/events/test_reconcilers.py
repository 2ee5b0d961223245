"""Whether providers and alerts can be used, as their conditions say."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api.flagprovider import FlagProviderStatus, ProviderType, needs_of
from controller.api.kinds import FLAG_PROVIDER
from controller.api.meta import TEST_ALERT
from controller.events.alert_reconciler import FlagAlertReconciler
from controller.events.provider_reconciler import FlagProviderReconciler
from controller.events.service_types import SERVICES
from controller.runtime.secret_texts import Binding, SecretContent
from controller.runtime.setbacks import Failed, Setback, Stalled, Waiting
from tests.worlds.events import CHAT, NOW, Desk, HookSecret, Plans, alert, event
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.meta import ObjectKey
    from controller.events.notice import ProviderTarget
    from controller.runtime.result import Result

CRDS = Path(__file__).parents[4] / "crds"
ADDRESS = "https://hooks.example.com/x"
FLUX_ADDRESS = "http://notification-controller.flux-system/"


class Routes:
    """What a deliverer is reported."""

    def __init__(self) -> None:
        self.used: dict[ObjectKey, ProviderTarget] = {}

    def use(self, key: ObjectKey, target: ProviderTarget) -> None:
        self.used[key] = target

    def stop(self, key: ObjectKey) -> None:
        self.used.pop(key, None)

    def last(self, key: ObjectKey) -> tuple[()]:
        del key
        return ()


class Providers:
    """A reconciler of providers, a Secret that may change, and what the API server keeps."""

    def __init__(self, secret: Mapping[str, bytes] | Setback | None = None, *, local: bool = False) -> None:
        self.secret, self.kept = HookSecret(secret), FlagProviderStatus()
        self.desk, self.routes, self.plans = Desk(alert()), Routes(), Plans()
        self.reconciler = FlagProviderReconciler(
            self.secret.read, self._newest, self.desk.outbox, self.routes, self.plans,  # type: ignore[arg-type]
            "controller-0", local, FLUX_ADDRESS,
        )  # fmt: skip

    async def _newest(self, key: ObjectKey) -> FlagProviderStatus:
        assert key == CHAT
        return self.kept

    async def reconcile(self, spec: Mapping[str, Any], **more: Any) -> Result:
        return await self.reconciler.reconcile(thing("FlagProvider", "chat", spec, **more), NOW)


def spec(kind: str = "generic", **more: Any) -> dict[str, Any]:
    return {"type": kind, **more}


def secret_for(token: bytes, address: bytes = b"") -> SecretContent:
    """A Secret that is for another host."""
    return SecretContent({"token": token, "address": address}, Binding("shop", "hook", ("chat.example.com",)))


SECRET: dict[str, Any] = {"secretRef": {"name": "hook"}}
MAIL: dict[str, Any] = {"address": "smtps://mail.example.com", "channel": "a@example.com"}
FROM: dict[str, Any] = {"username": "b@example.com"}


def cannot(why: str) -> Stalled:
    return Stalled("InvalidAddress", f"the address cannot be used: {why}")


def denial_of(host: str) -> Stalled:
    lacks = "its annotation flagstaff.dev/allowed-hosts does not name it"
    return Stalled("SecretHostDenied", f"Secret shop/hook may not be used for host {host}: {lacks}")


AWAY: Final = Failed("ApiServerFailed", "away")
ROWS: dict[str, tuple[dict[str, Any], Any, Setback]] = {
    "nowhere": (
        spec(), None,
        Stalled(
            "AddressNotFound",
            'spec.secretRef: type generic needs spec.address, or a Secret with a key "address"',
        ),
    ),
    "no Secret": (spec(**SECRET), None, Waiting("SecretNotFound", 'Secret "hook" not found')),
    "an empty Secret": (
        spec(**SECRET), {},
        Stalled("AddressNotFound", 'type generic needs spec.address, or a key "address" in Secret "hook"'),
    ),
    "no token": (
        spec("generic-hmac", address=ADDRESS, **SECRET), {"token": b""},
        Stalled("TokenNotFound", 'type generic-hmac needs a key "token" in Secret "hook"'),
    ),
    "no Secret for a token": (
        spec("pagerduty"), None,
        Stalled("TokenNotFound", 'spec.secretRef: type pagerduty needs a Secret with a key "token"'),
    ),
    "no text": (
        spec(**SECRET), {"address": b"\xff"},
        Stalled("InvalidSecret", "Secret hook: 'address' is not UTF-8 text"),
    ),
    "a token that no service gives out": (
        spec("generic-hmac", address=ADDRESS, **SECRET), {"token": b"t" * 4_097},
        Stalled("InvalidSecret", "Secret hook: 'token' has more than 4096 characters"),
    ),
    "plain http": (spec(address="http://hooks.example.com/x"), None, cannot("it must begin with https://")),
    "loopback": (
        spec("pagerduty", address="https://127.0.0.1/", **SECRET), {"token": b"t"},
        cannot("127.0.0.1 is not a public address"),
    ),
    "a host that is not allowed": (
        spec(address=ADDRESS, **SECRET), secret_for(b"t"), denial_of("hooks.example.com"),
    ),
    "the API of a repository's server": (
        spec("github", address="https://github.com/o/r", **SECRET),
        secret_for(b"t"),
        denial_of("api.github.com"),
    ),
    "another's server": (spec("pagerduty", **SECRET), secret_for(b"t"), denial_of("events.pagerduty.com")),
    "nobody who mails": (
        spec("email", **MAIL), None, Stalled("UsernameNotFound", "spec.username: type email needs it"),
    ),
    "a mail server in clear": (
        spec("email", **{**MAIL, "address": "http://mail.example.com"}, **FROM), None,
        Stalled(
            "InvalidAddress",
            "spec.address: it must be smtps://HOST, or smtp://HOST for a server with STARTTLS",
        ),
    ),
    "another's mail server": (
        spec("email", **MAIL, **FROM, **SECRET), secret_for(b"t"), denial_of("mail.example.com"),
    ),
    "Flux by a proxy of the tenant's": (
        spec("flux", proxySecretRef={"name": "hook"}), {"address": b"http://10.0.0.1:1"},
        Stalled(
            "AddressNotFound", "type flux needs spec.address where proxySecretRef or certSecretRef is given"
        ),
    ),
    "no type": ({"address": ADDRESS}, None, Stalled("InvalidSpec", "spec.type: is required")),
    "an API server that is away": (spec(**SECRET), AWAY, AWAY),
}  # fmt: skip


@pytest.mark.parametrize(("given", "secret", "wanted"), ROWS.values(), ids=ROWS.keys())
async def test_unusable_provider_is_stalled_with_reason_and_message(
    given: dict[str, Any], secret: Any, wanted: Setback
) -> None:
    around = Providers(secret)
    result = await around.reconcile(given)
    assert type(result.outcome) is type(wanted)
    assert (result.outcome.reason, result.outcome.message) == (wanted.reason, wanted.message)
    assert around.routes.used == {}
    assert result.status.fields()["waiting"] == 0


async def test_secret_overrides_the_spec() -> None:
    around = Providers({"address": b"https://other.example.com/y\n", "token": b"t\r\n"})
    result = await around.reconcile(spec(address=ADDRESS, **SECRET))
    assert result.kind == "success"
    target = around.routes.used[CHAT]
    assert (target.address, target.token, target.namespace) == ("https://other.example.com/y", "t", "shop")


ADDRESSES: Final = st.builds(
    "{}{}".format,
    st.sampled_from(["https://h.example.com/a/b", "smtps://h", "https://k1@h/1", "https://10.0.0.1", ""]),
    st.sampled_from(["", "/_git/c", ":99999", "?x", "#", " ", "\n", "é", "\ud800", "[", "@"])
    | st.text(max_size=5),
)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(get_args(ProviderType)), ADDRESSES, st.sampled_from(["flags.a", "a@x.com", ".", "a b"])
)
def test_provider_with_a_valid_spec_is_ready(kind: str, address: str, name: str) -> None:
    asked = spec(kind, address=address, channel=name, username=name)
    if not FLAG_PROVIDER.validate(asked):
        assert asyncio.run(Providers(local=True).reconcile(asked)).kind == "success"


@pytest.mark.parametrize("kind", [each for each in SERVICES if "address" not in needs_of(each)])
async def test_service_with_a_fixed_address_needs_none(kind: ProviderType) -> None:
    around = Providers({"token": b"t"})
    assert (await around.reconcile(spec(kind, **SECRET))).kind == "success"


async def test_flux_is_asked_at_the_operators_address_unless_another_is_given() -> None:
    around = Providers()
    assert (await around.reconcile(spec("flux"))).kind == "success"
    target = around.routes.used[CHAT]
    assert (target.address, target.operators) == (FLUX_ADDRESS, True)
    assert (await around.reconcile(spec("flux", address=ADDRESS))).kind == "success"
    target = around.routes.used[CHAT]
    assert (target.address, target.operators) == (ADDRESS, False)


async def test_local_address_is_used_with_allow_local() -> None:
    assert (await Providers(local=True).reconcile(spec(address="http://127.0.0.1:8099/"))).kind == "success"


async def test_target_is_kept_while_the_secret_cannot_be_read() -> None:
    around = Providers({"address": ADDRESS.encode()})
    await around.reconcile(spec(**SECRET))
    around.secret.found = Failed("ApiServerFailed", "away")
    await around.reconcile(spec(**SECRET))
    assert around.routes.used[CHAT].address == ADDRESS
    around.secret.found = None
    await around.reconcile(spec(**SECRET))
    assert around.routes.used == {}


async def test_requested_test_message_is_queued_once() -> None:
    around = Providers()
    handled = [
        (await around.reconcile(spec(address=ADDRESS), annotations={TEST_ALERT: asked})).status.fields()[
            "lastHandledTest"
        ]
        for asked in ("one", "one", "two")
    ]
    assert handled == ["one", "one", "two"]
    assert around.desk.waiting_reasons() == ["TestAlert", "TestAlert"]


async def test_outbox_is_read_from_the_api_server() -> None:
    around = Providers()
    around.desk.accept(event("Applied"))
    around.kept = FlagProviderStatus(dead=7)
    around.desk.outbox.begin()
    around.desk.outbox.accept(event("NewArtifact"))
    result = await around.reconcile(spec(address=ADDRESS))
    assert result.status.fields()["dead"] == 7
    assert [each["reason"] for each in result.status.fields()["pending"]] == ["NewArtifact"]


async def test_delivered_condition_is_kept_after_a_restart() -> None:
    reported = {"type": "Delivered", "status": "True", "reason": "Succeeded", "message": "m"}
    result = await Providers().reconcile(spec(address=ADDRESS), status={"conditions": [reported]})
    assert [(each.type, each.status) for each in result.details] == [("Delivered", "True")]


async def test_deleted_provider_is_forgotten() -> None:
    around = Providers()
    await around.reconcile(spec(address=ADDRESS))
    around.reconciler.forget(CHAT)
    assert around.routes.used == {}
    assert around.desk.outbox.box(CHAT) is None


# -- alerts --------------------------------------------------------------------------------------------------


async def test_alert_is_ready_with_a_provider_and_waits_without() -> None:
    desk = Desk()
    reconciler = FlagAlertReconciler(desk.objects, desk.outbox)
    result = await reconciler.reconcile(alert(), NOW)
    assert result.kind == "success"
    desk.objects.learn(replace(desk.provider, spec={"suspend": True}, resource_version="2"))
    result = await reconciler.reconcile(alert(), NOW)
    assert getattr(result.outcome, "message", "") == "FlagProvider chat is suspended; no alert is sent"
    desk.objects.forget(CHAT)
    result = await reconciler.reconcile(alert(), NOW)
    assert isinstance(result.outcome, Waiting)
    assert result.outcome.message == "FlagProvider chat not found; no alert is sent"
    result = await reconciler.reconcile(alert(inclusionList=["("]), NOW)
    assert isinstance(result.outcome, Stalled)
    assert "spec.inclusionList.0" in result.outcome.message


async def test_alert_names_missing_providers() -> None:
    desk = Desk()
    reconciler = FlagAlertReconciler(desk.objects, desk.outbox)
    several = alert(providerRefs=[{"name": "phone"}, {"name": "chat"}])
    result = await reconciler.reconcile(several, NOW)
    assert isinstance(result.outcome, Waiting)
    assert result.outcome.message == "FlagProvider phone not found; others are sent alerts"
    desk.objects.learn(thing("FlagProvider", "phone", {"type": "generic"}))
    result = await reconciler.reconcile(several, NOW)
    assert getattr(result.outcome, "message", "") == "alerts go to FlagProvider chat, phone"
