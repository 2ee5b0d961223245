"""The .deb: the wheel with all that the controller's lock pins, in an environment of its own below
/opt/flagstaff, and units of systemd. It has no scripts: installing it starts nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_UNITS: Final = Path(__file__).parent / "systemd"
_HOME: Final = "opt/flagstaff"
_PYTHON: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
_SCRIPT: Final = f"""#!/{_HOME}/bin/python3
import sys

from controller.cli import main

sys.exit(main())
"""
_CONTROL: Final = """Package: flagstaff
Version: {version}
Architecture: {architecture}
Maintainer: The Flagstaff authors <flagstaff@localhost>
Installed-Size: {kilobytes}
Depends: {python}
Recommends: git, openssh-client
Section: admin
Priority: optional
Description: feature flags from Git, served to every OpenFeature client
 flagstaff-up.service follows a repository, and flagstaff-evaluator.service
 follows that on other machines. Neither starts before it is enabled.
"""


def build_debian_package(wheel: Path, version: str, dist: Path) -> Path:
    """Write the package of this machine's architecture and Python into `dist`; return it."""
    architecture = _run("dpkg", "--print-architecture")
    file = dist / f"flagstaff_{version}_{architecture}.deb"
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        root.chmod(0o755)
        _install(wheel, root / _HOME)
        _copy_files(root)
        kilobytes = sum(path.lstat().st_size for path in root.rglob("*")) // 1024
        control = root / "DEBIAN"
        control.mkdir()
        text = _CONTROL.format(
            version=version, architecture=architecture, kilobytes=kilobytes, python=_PYTHON
        )
        (control / "control").write_text(text, encoding="utf-8")
        (control / "conffiles").write_text(
            "".join(f"/etc/flagstaff/{file.name}\n" for file in sorted(_UNITS.glob("*.env"))),
            encoding="utf-8",
        )
        # xz takes minutes.
        _run("dpkg-deb", "--root-owner-group", "-Zzstd", "-z3", "--build", root, file)
    return file


def _install(wheel: Path, home: Path) -> None:
    """The environment that `venv` would make there, by the Python of Debian."""
    packages = home / "lib" / _PYTHON / "site-packages"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python3").symlink_to(f"/usr/bin/{_PYTHON}")
    version = ".".join(map(str, sys.version_info[:3]))
    (home / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {version}\n", encoding="utf-8")
    script = home / "bin" / "flagstaff"
    script.write_text(_SCRIPT, encoding="utf-8")
    script.chmod(0o755)
    uv = Path(sys.executable).parent / "uv"
    into = (
        uv,
        "pip",
        "install",
        "-q",
        "--python",
        sys.executable,
        "--target",
        packages,
        "--link-mode",
        "copy",
    )
    _run(*into, "--require-hashes", "-r", ROOT / "requirements" / "controller.txt")
    _run(*into, "--no-deps", wheel)
    shutil.rmtree(packages / "bin", ignore_errors=True)
    # What names the folder of this build, and when it was.
    for name in ("direct_url.json", "uv_cache.json"):
        for written in packages.glob(f"flagstaff-*.dist-info/{name}"):
            written.unlink()
    (record,) = packages.glob("flagstaff-*.dist-info/RECORD")
    lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = (line for line in lines if "direct_url.json" not in line and "uv_cache.json" not in line)
    record.write_text("".join(kept), encoding="utf-8")
    (packages / ".lock").unlink(missing_ok=True)


def _copy_files(root: Path) -> None:
    for source, folder in (
        *((unit, "usr/lib/systemd/system") for unit in _UNITS.glob("*.service")),
        *((file, "etc/flagstaff") for file in _UNITS.glob("*.env")),
        (ROOT / "docs" / "machines.md", "usr/share/doc/flagstaff"),
    ):
        (root / folder).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, root / folder / source.name)
        (root / folder / source.name).chmod(0o644)
    shutil.copyfile(ROOT / "LICENSE", root / "usr/share/doc/flagstaff/copyright")
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/flagstaff").symlink_to(f"/{_HOME}/bin/flagstaff")
    for folder, _, _ in os.walk(root):
        Path(folder).chmod(0o755)


def _run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
