"""The account of each request, as the header shows that the API server goes by."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import orjson
import pytest
from kubernetes.aio import client

from controller.kube.client import Accounts, Cluster
from controller.runtime.secret_texts import Binding
from controller.runtime.setbacks import Failed, Stalled
from evaluator.http.limits import Limits
from evaluator.http.listener import Listener
from evaluator.http.messages import Response
from evaluator.http.routes import Routes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evaluator.http.messages import Request

PATH = "/api/v1/namespaces/shop/secrets/git"
NOBODY = "nobody"


@contextlib.asynccontextmanager
async def cluster(refusal: str = "", **annotations: str) -> AsyncIterator[tuple[Cluster, list[str]]]:
    """A client, and the accounts with which it asked for the Secret `git` in `shop`."""
    users: list[str] = []

    def answer(request: Request) -> Response:
        users.append(dict(request.headers).get("impersonate-user", NOBODY))
        meta = {"name": "git", "annotations": annotations}
        body = {"message": refusal} if refusal else {"metadata": meta, "data": {"a": "Yg=="}}
        return Response(403 if refusal else 200, orjson.dumps(body), (("content-type", "application/json"),))

    listener = Listener(Routes(http={("GET", PATH): answer}), Limits(), name="api")
    port = await listener.start("127.0.0.1", 0)
    made = Cluster(client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{port}")))
    try:
        yield made, users
    finally:
        await made.close()
        await listener.drain(1.0)


@pytest.mark.parametrize(
    ("default", "named", "user"),
    [
        ("", None, NOBODY),
        ("", "flags", "system:serviceaccount:shop:flags"),
        ("tenant", None, "system:serviceaccount:shop:tenant"),
        ("tenant", "flags", "system:serviceaccount:shop:flags"),
    ],
)
async def test_an_object_is_worked_on_as_it_says_and_else_by_the_default(
    default: str, named: str | None, user: str
) -> None:
    async with cluster() as (made, users):
        assert await Accounts(made, default).secret("shop", "git", named) == {"a": b"b"}
    assert users == [user]


async def test_an_invalid_account_name_causes_no_request() -> None:
    async with cluster() as (made, users):
        with pytest.raises(Stalled, match="no service account can have this name"):
            await Accounts(made).secret("shop", "git", "kube-system:admin")
    assert users == []


OURS = "flagstaff-system:flagstaff-controller"
IMPERSONATION = ("flagstaff-impersonation", "impersonation", OURS)


@pytest.mark.parametrize(
    ("refusal", "named", "command"),
    [
        ("no", None, ("flagstaff-secrets", "secrets", OURS)),
        ("no", "flags", ("flagstaff-secrets-flags", "secrets", "shop:flags")),
        ('User "us" cannot impersonate-on:serviceaccount:get resource "secrets"', "flags", IMPERSONATION),
        ('User "us" cannot impersonate resource "serviceaccounts"', "flags", IMPERSONATION),
    ],
)
async def test_a_refusal_says_how_to_grant_what_lacks(
    refusal: str, named: str | None, command: tuple[str, str, str]
) -> None:
    async with cluster(refusal) as (made, _):
        with pytest.raises(Failed) as caught:
            await Accounts(made).secret("shop", "git", named)
    name, role, account = command
    assert caught.value.message == (
        f"Secret git: {refusal}; kubectl create rolebinding {name} -n shop"
        f" --clusterrole=flagstaff-{role} --serviceaccount={account}"
    )


@pytest.mark.parametrize("required", [False, True])
async def test_a_secret_that_is_annotated_comes_with_its_hosts(*, required: bool) -> None:
    async with cluster(**{"flagstaff.dev/allowed-hosts": "git.example.com, *.example.org"}) as (made, _):
        found = await Accounts(made, require_hosts=required).secret("shop", "git")
    assert found is not None
    assert found.binding == Binding("shop", "git", ("git.example.com", "*.example.org"), required)


@pytest.mark.parametrize("required", [False, True])
async def test_a_secret_without_the_annotation_is_refused_where_it_is_required(*, required: bool) -> None:
    async with cluster() as (made, _):
        found = await Accounts(made, require_hosts=required).secret("shop", "git")
    assert found is not None
    assert found.binding == Binding("shop", "git", None, required)
