"""Evaluators that follow `flagstaff up`, and what it tells of them: by its verbs and on its page."""

from __future__ import annotations

import asyncio
import subprocess
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING

import trustme

from tests.clients.evaluator import FLAGSTAFF, evaluator
from tests.clients.up import banner, up
from tests.repositories import Repository
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def flagstaff(*words: str) -> tuple[int, str]:
    done = subprocess.run([FLAGSTAFF, *words], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def shows(to: str, text: str) -> None:
    """Until `flagstaff fleet` shows it."""
    asyncio.run(until(lambda: text in flagstaff("fleet", "--to", to)[1]))


def test_a_wait_ends_once_all_evaluators_serve_the_commit(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(flags__json=banner("plain"))
    (tmp_path / "tokens").write_text("vm-1 secret-1\nshared\n")
    with ExitStack() as running:
        leader = running.enter_context(up(repository, "--tokens", str(tmp_path / "tokens")))
        ports = leader.ready()
        to = f"127.0.0.1:{ports['management']}"
        for name, token in (("vm-1", "secret-1"), ("vm-2", "shared"), ("vm-3", "wrong")):
            (tmp_path / name).write_text(token)
            source = (
                f'[{{"uri":"127.0.0.1:{ports["sync"]}","provider":"grpc",'
                f'"bearerTokenFile":"{tmp_path / name}"}}]'
            )
            running.enter_context(evaluator("--sources", source, cwd=tmp_path))
        shows(to, "3 of 3 evaluators serve what is delivered")
        commit = repository.commit(flags__json=banner("party"))
        code, text = flagstaff("wait", "flagset/flags", "--revision", commit, "--to", to, "--timeout", "20s")
        assert (code, "3/3 evaluators" in text or "3 of 3" in text) == (0, True), text
        _, table = flagstaff("fleet", "--to", to)
        assert table.count("  ok  ") == 3
        assert "local/flags  vm-1  " in table
        assert "(claimed)" in table
        code, text = flagstaff("wait", "flagset/other", "--revision", commit, "--to", to)
        assert (code, "there is no FlagSet/other; the flag set of `flagstaff up` is" in text) == (1, True)
        code, text = flagstaff("wait", "flagset/flags", "--revision", "f" * 40, "--to", to, "--timeout", "1s")
        assert (code, "not served within 1 s" in text) == (1, True)
        with urllib.request.urlopen(f"http://{to}/ui/delivery") as page:
            assert "vm-1" in page.read().decode()


def test_the_name_in_an_evaluator_s_certificate_is_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(flags__json=banner("plain"))
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    for who in ("127.0.0.1", "vm-1.example.com"):
        issued = authority.issue_cert(who, common_name=who)
        issued.cert_chain_pems[0].write_to_path(tmp_path / f"{who}.crt")
        issued.private_key_pem.write_to_path(tmp_path / f"{who}.key")
    monkeypatch.setenv("FLAGD_SERVER_CERT_PATH", str(tmp_path / "127.0.0.1.crt"))
    monkeypatch.setenv("FLAGD_SERVER_KEY_PATH", str(tmp_path / "127.0.0.1.key"))
    monkeypatch.setenv("FLAGSTAFF_CLIENT_CA_PATH", str(tmp_path / "ca.crt"))
    with up(repository) as leader:
        ports = leader.ready()
        own = tmp_path / "vm-1.example.com"
        source = (
            f'[{{"uri":"127.0.0.1:{ports["sync"]}","provider":"grpc","tls":true,'
            f'"certPath":"{tmp_path / "ca.crt"}","clientCertPath":"{own}.crt","clientKeyPath":"{own}.key"}}]'
        )
        with evaluator("--sources", source, cwd=tmp_path):
            to = f"127.0.0.1:{ports['management']}"
            shows(to, "local/flags  vm-1.example.com  ")
