"""`flagstaff up` judges each commit by the policies that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from controller.local.local_options import LocalOptions
from controller.local.local_stages import build_once
from tests.repositories import Repository
from tests.signing import ssh_pair
from tests.worlds.flags import flags

if TYPE_CHECKING:
    from pathlib import Path

    from controller.flagsets.compose import Composition

POLICY: Final = (
    "name: steady\naction: {action}\n"
    "validations: [{{expression: 'plan.most <= 10', message: in small steps}}]\n"
)
SIGNED: Final = (
    "name: signed\naction: Hold\n"
    "validations: [{expression: 'signer.startsWith(\"ada@example.com (\")', message: ada signs}]\n"
)


async def built(options: LocalOptions) -> Composition:
    return (await build_once(options)).composition


@pytest.mark.parametrize(
    ("action", "accepted", "held", "serves"),
    [("Deny", False, (), "on"), ("Hold", True, ("banner",), "on"), ("Warn", True, (), "off")],
)
async def test_change_that_does_not_meet_a_policy_meets_its_action(
    tmp_path: Path, action: str, accepted: bool, held: tuple[str, ...], serves: str
) -> None:
    repository = Repository(tmp_path / "flags")
    repository.write("policies/steady.yaml", POLICY.format(action=action))
    repository.commit(flags__json=flags(banner="on"))
    options = LocalOptions(str(repository.path), state_dir=tmp_path / "state")
    assert (await built(options)).accepted
    repository.commit(flags__json=flags(banner="off"))
    made = await built(options)
    assert (made.accepted, made.held if accepted else ()) == (accepted, held)
    assert made.flag_set.flags["banner"].default_variant == serves
    (problem,) = made.problems
    assert f'policy steady ({action}): flag "banner": in small steps' in problem.message


async def test_signer_is_whose_signature_was_verified(tmp_path: Path) -> None:
    repository, ada = Repository(tmp_path / "flags"), ssh_pair(tmp_path)
    ada.use(repository)
    repository.git("config", "commit.gpgsign", "true")
    repository.write("policies/signed.yaml", SIGNED)
    repository.commit(flags__json=flags(banner="on"))
    plain = LocalOptions(str(repository.path), state_dir=tmp_path / "plain")
    keys = {"ada.sshpub": ada.public.encode()}
    verified = LocalOptions(str(repository.path), state_dir=tmp_path / "verified", verify_keys=keys)
    for options in (plain, verified):
        assert (await built(options)).held == ()
    repository.commit(flags__json=flags(banner="off"))
    assert (await built(plain)).held == ("banner",)
    assert (await built(verified)).held == ()
