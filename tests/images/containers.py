"""Runs a program of an image as Kubernetes does with `readOnlyRootFilesystem`: as the image's user, without
rights of root, over files that nobody can write; /tmp is a volume. It needs no container runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.programs import DIES_WITH_US

if TYPE_CHECKING:
    from pathlib import Path

_CONTAINED: Final = """
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/tmp"
mount --bind "$2" "$1/mnt"
mount -o remount,bind,ro "$1"
cd "$1"
shift 2
exec "$@"
"""


def command(root: Path, settings: dict[str, Any], shared: Path, *words: str, entry: bool = True) -> list[str]:
    """What starts `words` behind the image's entry point, or alone. `root` has the files of the image, and
    `settings` are its configuration; the folder `shared` is /mnt.
    """
    started = [*settings.get("Entrypoint", []), *words] if entry else list(words)
    return [
        *DIES_WITH_US, "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", _CONTAINED, "sh",
        str(root), str(shared),
        "setpriv", "--bounding-set=-all,+sys_chroot,+setuid,+setgid", "--no-new-privs",
        "chroot", f"--userspec={settings['User']}", str(root),
        "env", "-i", f"--chdir={settings['WorkingDir']}", "HOME=/home/flagstaff", *settings["Env"], *started,
    ]  # fmt: skip
