"""A FlagReceiver for a spine, and the signed webhook that a Git server sends to it."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Final

from tests.worlds.objects import manifest, secret

if TYPE_CHECKING:
    from tests.cluster.spines import Spine

TOKEN: Final = "a-token-of-nobody-at-all"  # noqa: S105 - opens nothing but a test


class Hook:
    """A ready receiver of everything in the spine's namespace, behind the controller's port."""

    def __init__(self, spine: Spine, port: int) -> None:
        self._repository = spine.url
        spec = {"type": "generic-hmac", "secretRef": {"name": "hook"}, "resources": [{"name": "*"}]}
        spine.apply(secret("hook", token=TOKEN), manifest("FlagReceiver", "hook", spec))
        path = spine.wait_ready("flagreceiver", "hook")["status"]["webhookPath"]
        self._url = f"http://127.0.0.1:{port}{path}"

    def send(self, commit: str) -> str:
        """Tell of a commit on main, as often as the receiver asks to come back later; its answer."""
        payload = {"repository": self._repository, "ref": "refs/heads/main", "commit": commit}
        body = json.dumps(payload).encode()
        signature = hmac.new(TOKEN.encode(), body, hashlib.sha256).hexdigest()
        headers = {"X-Signature": f"sha256={signature}"}
        while True:
            request = urllib.request.Request(self._url, body, headers)  # noqa: S310 - loopback
            try:
                with urllib.request.urlopen(request) as answer:  # noqa: S310 - loopback
                    return str(answer.read().decode())
            except urllib.error.HTTPError as error:
                with error:
                    if error.code != 429:
                        raise
                    time.sleep(float(error.headers["retry-after"]))
