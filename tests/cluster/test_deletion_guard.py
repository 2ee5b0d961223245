"""A flag that evaluators are asked for is not deleted by a commit alone."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tests.worlds.flags import flags
from tests.worlds.objects import condition, flag_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.spines import Spine


class Requests:
    """A server of Prometheus' API that knows how often a pod asked for `old`."""

    count = 7
    status = 200
    address = ""

    def answer(self, query: str) -> dict[str, Any]:
        labels = {"feature_flag_key": "old", "namespace": "shop", "pod": "web-1"}
        known = "old" in query and self.count and not query.startswith("max")
        result = [{"metric": labels, "value": [1.0, str(self.count)]}] if known else []
        return {"status": "success", "data": {"resultType": "vector", "result": result}}


@contextlib.contextmanager
def run_requests() -> Iterator[Requests]:
    requests = Requests()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parameters = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
            content = json.dumps(requests.answer(parameters["query"][0])).encode()
            self.send_response(requests.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_arguments: object) -> None:
            """Without a line for each request."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        requests.address = f"http://127.0.0.1:{server.server_port}"
        try:
            yield requests
        finally:
            server.shutdown()
            thread.join()


def guard(address: str) -> dict[str, Any]:
    return {"requestedWithin": "168h", "provider": {"type": "prometheus", "address": address}}


def test_a_flag_that_is_asked_for_is_not_deleted_until_a_person_says_so(spine: Spine) -> None:
    spine.wait_applied(spine.push(flags__json=flags(banner="on", old="on", other="on")))
    with run_requests() as requests:
        spine.apply(flag_set(deletionGuard=guard(requests.address)))
        spine.wait_ready("flagset")
        spine.push(flags__json=flags(banner="off"))
        held = spine.wait_reason("flagset", "PartiallyApplied")
        assert spine.served_variants() == {"banner": "off", "old": "on"}
        words = 'the deletion of "old" waits: 7 requests in 168h, by shop/web-1 (7)'
        assert words in condition(held, "Ready")["message"]
        assert held["status"]["problems"][0]["flag"] == "old"
        assert any(
            words in each["message"] for each in spine.events() if each["reason"] == "PartiallyApplied"
        )
        revision = held["status"]["lastAttemptedRevision"]
        accept = f"flagstaff.dev/accept-revision={revision}"
        spine.kubectl("annotate", "flagset", "flags", "--overwrite", accept)
        spine.wait_ready("flagset")
        assert spine.served_variants() == {"banner": "off"}


def test_a_flag_stays_while_the_server_has_no_answer(spine: Spine) -> None:
    spine.wait_applied(spine.push(flags__json=flags(banner="on", old="on")))
    with run_requests() as requests:
        requests.status = 503
        spine.apply(flag_set(deletionGuard=guard(requests.address)))
        spine.wait_ready("flagset")
        spine.push(flags__json=flags(banner="on"))
        held = spine.wait_reason("flagset", "PartiallyApplied")
        assert "is not known: 127.0.0.1 answers 503" in condition(held, "Ready")["message"]
        assert spine.served_variants() == {"banner": "on", "old": "on"}
        requests.status, requests.count = 200, 0
        spine.wait_applied(spine.push(flags__json=flags(banner="off")))
        assert spine.served_variants() == {"banner": "off"}
