"""A control plane, two controllers, two proxies and three evaluators, each of which can be broken and mended
alone.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.chaos.certificates import KEPT, ServerCertificates
from tests.chaos.clocks import OFF_BY, Clock
from tests.chaos.credentials import Credentials
from tests.chaos.faults import CERTIFICATES, CONTROLLERS, EVALUATORS, GIT, PLANE, PROXIES
from tests.chaos.judging import Progress
from tests.chaos.tokens import Tokens
from tests.clients.disks import Limited, SmallDisk
from tests.cluster.controllers import ControllerProcess
from tests.cluster.fleets import followed_source
from tests.cluster.patience import within
from tests.cluster.pods import PodProcess
from tests.cluster.proxies import ProxyProcess
from tests.cluster.relay import Relay, relay
from tests.cluster.test_evaluator_end import ENFORCED
from tests.volumes import mount_tmpfs

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.chaos.faults import Fault
    from tests.chaos.judging import Violations
    from tests.clients.disks import Disk
    from tests.cluster.replica import Replica
    from tests.cluster.spines import Spine

NAME: Final = "flags"
_DISKS: Final = {"evaluator-1": "size=1m", "evaluator-2": "size=4m", "evaluator-3": "size=64m"}
_DISK: Final = "size=2m"
"""Of the others."""
_START_SECONDS: Final = 60.0


class Service(Relay):
    """Leads each connection to one of the proxies, as a Service that does not know which of them work."""

    def __init__(self, proxies: list[ProxyProcess], chance: random.Random) -> None:
        self._proxies, self._chance = proxies, chance
        super().__init__(0)

    def choose(self) -> int:
        return self._chance.choice(self._proxies).sync


class ChaosWorld:
    """Everything, by the names of `faults`."""

    def __init__(self, spine: Spine, folder: Path, violations: Violations) -> None:
        self.spine, self._plane, self.folder, self._violations = spine, spine.plane, folder, violations
        self.controllers: dict[str, ControllerProcess] = {}
        self.proxies: dict[str, ProxyProcess] = {}
        self.pods: dict[str, PodProcess] = {}
        self.networks: dict[str, Relay] = {}
        self.disks: dict[str, Disk] = {}
        self.progress = {name: Progress(time.monotonic) for name in EVALUATORS}
        self._tokens = Tokens(spine, folder)
        self._credentials = Credentials(self._plane)
        self.certificates = ServerCertificates(spine, folder)
        self._clocks: dict[str, Clock] = {}
        self.without_disk: list[str] = []
        """Whose disks are imitated, since none can be mounted."""
        self.down: set[str] = set()
        """Who is killed now, or about to start."""
        self.lives = dict.fromkeys((*CONTROLLERS, *PROXIES), 1)
        """How often each was started."""
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def start(self, stack: contextlib.ExitStack, chance: random.Random) -> None:
        """Start all, each when what it needs is there."""
        self._tokens.grant()
        self.certificates.install()
        for name in CONTROLLERS:
            self.disks[name] = self._disk(stack, self.folder / name / "data")
            made = ControllerProcess(
                self._plane, self.folder / name, *KEPT, name=name, via=self._via(stack, name)
            )
            self.controllers[name] = made
            self._begin(stack, name, made, "flagstaff-controller")
        self.certificates.begin(stack)
        for name in PROXIES:
            options = (*ENFORCED, *self.certificates.files)
            proxy = ProxyProcess(
                self._plane, self.folder / name, *options, name=name, via=self._via(stack, name)
            )
            self.proxies[name] = proxy
            self._begin(stack, name, proxy, "flagstaff-proxy")
        for name in EVALUATORS:
            self._start_evaluator(stack, name, Service([*self.proxies.values()], chance))

    def _via(self, stack: contextlib.ExitStack, name: str) -> str:
        """Where it finds the API server."""
        self.networks[name] = stack.enter_context(relay(self._plane.port))
        return f"https://127.0.0.1:{self.networks[name].port}"

    def _begin(self, stack: contextlib.ExitStack, name: str, replica: Replica, account: str) -> None:
        self._credentials.begin(name, account, replica, f"https://127.0.0.1:{self.networks[name].port}")
        temporary = self.folder / name / "tmp"
        temporary.mkdir(parents=True)
        clock = self._clocks[name] = Clock(self.folder / name)
        environ = {"TMPDIR": str(temporary), **clock.environ}
        replica.command = ["env", *(f"{key}={value}" for key, value in environ.items()), *replica.command]
        stack.enter_context(contextlib.closing(replica))
        replica.start()

    def _start_evaluator(self, stack: contextlib.ExitStack, name: str, service: Service) -> None:
        self.networks[name] = stack.enter_context(contextlib.closing(service))
        folder = self.folder / name
        folder.mkdir()
        source = {
            **followed_source(f"127.0.0.1:{service.port}", self.spine.name, NAME),
            "bearerTokenFile": str(self._tokens.file(name)),
            "tls": True,
            "certPath": str(self.certificates.authorities),
        }
        self.disks[name] = self._disk(stack, folder / "state")
        state = ("--state-dir", str(folder / "state" / "kept"))
        clock = self._clocks[name] = Clock(folder)
        pod = PodProcess(self._plane, self.spine.name, name, source, folder, *state, environ=clock.environ)
        self.pods[name] = pod
        stack.callback(lambda: pod.evaluator.stop(signal.SIGKILL))
        self._tokens.rotate(name)

    def _disk(self, stack: contextlib.ExitStack, folder: Path) -> Disk:
        name = folder.parent.name
        if not stack.enter_context(mount_tmpfs(folder, _DISKS.get(name, _DISK))):
            self.without_disk.append(name)
            return Limited(folder)
        return SmallDisk(folder, each=4096)

    @property
    def replicas(self) -> dict[str, Replica]:
        """Controllers and proxies."""
        return {**self.controllers, **self.proxies}

    def find_doubted(self) -> str:
        """Whose certificate is not believed; empty: nobody's."""
        return self.certificates.find_doubted({name: each.sync for name, each in self.proxies.items()})

    def pid(self, name: str) -> int:
        """Of the process that has the name now."""
        return self.pods[name].evaluator.process.pid if name in self.pods else self.replicas[name].pid

    def ended_processes(self) -> list[str]:
        """Who ended without being killed."""
        gone = [name for name, each in self.replicas.items() if each.has_ended()]
        gone += [name for name, each in self.pods.items() if each.evaluator.process.poll() is not None]
        return [name for name in gone if name not in self.down]

    def log_of(self, name: str) -> str:
        """What it logged in this life."""
        if name in self.pods:
            return "\n".join(map(str, self.pods[name].evaluator.log))
        return self.replicas[name].log_text()

    @contextlib.contextmanager
    def break_for(self, fault: Fault) -> Iterator[None]:
        """The fault, for as long as the block lasts, and not before the last one of the target is mended."""
        with self._locks[fault.target], self._break(fault):
            yield

    @contextlib.contextmanager
    def _break(self, fault: Fault) -> Iterator[None]:
        if fault.target == GIT:
            self.spine.server.mood = fault.kind
            yield
            self.spine.server.mood = ""
            return
        ways: dict[str, Callable[[str], contextlib.AbstractContextManager[None]]] = {
            "kill": self._kill, "freeze": self._freeze, "fill": self._fill_disk, "cut": self._cut,
            "expire": self._expire, "strand": self._strand,
            **{kind: partial(self._move_clock, by) for kind, by in OFF_BY.items()},
        }  # fmt: skip
        with ways[fault.kind](fault.target):
            yield

    @contextlib.contextmanager
    def _kill(self, name: str) -> Iterator[None]:
        if name in PLANE:
            self._plane.end(name, signal.SIGKILL)
            yield
            self._plane.run(name)
            if name == "kube-apiserver":
                self._plane.wait_ready()
            return
        self.down.add(name)
        if name in self.pods:
            self.pods[name].evaluator.stop(signal.SIGKILL)
            yield
            # No answer of the life that ended may be judged after this.
            self.progress[name].restart()
            self.pods[name].restart()
            self.pods[name].port("ofrep")
        else:
            self.replicas[name].end(signal.SIGKILL)
            yield
            self._start(name)
        self.down.discard(name)

    def _start(self, name: str) -> None:
        """As a kubelet does: again, where it ends."""
        until = time.monotonic() + _START_SECONDS
        while True:
            self.lives[name] += 1
            try:
                return self.replicas[name].start()
            except AssertionError as error:
                code = self.replicas[name].wait() if self.replicas[name].has_ended() else None
                self._violations.add(f"{name} did not start, exit code {code}", str(error))
                self.replicas[name].close()
                if time.monotonic() > until:
                    return None

    @contextlib.contextmanager
    def _freeze(self, name: str) -> Iterator[None]:
        send: Callable[[signal.Signals], Any]
        if name in PLANE:
            send = partial(self._plane.send, name)
        else:
            send = self.pods[name].send if name in self.pods else self.replicas[name].send
        send(signal.SIGSTOP)
        yield
        if name in self.progress:
            self.progress[name].thaw()
        send(signal.SIGCONT)

    @contextlib.contextmanager
    def _fill_disk(self, name: str) -> Iterator[None]:
        process: Any = self.pods[name].evaluator.process if name in self.pods else self.replicas[name]
        # A last good set has room of its own; a process that may write no file at all cannot use it.
        refuses = name in self.progress and name in self.without_disk
        if refuses:
            self.progress[name].disk(full=True)
        self.disks[name].fill(process)
        yield
        self.disks[name].empty(process)
        if refuses:
            self.progress[name].disk(full=False)

    @contextlib.contextmanager
    def _strand(self, name: str) -> Iterator[None]:
        """Its disk is full for as long as the fault lasts; then nothing that it follows answers, and it is
        killed and started again.
        """
        with self._fill_disk(name):
            yield
            with self._cut(name):
                with self._kill(name):
                    pass
                checked = self.progress[name].checked
                within(lambda: self.progress[name].checked > checked)

    @contextlib.contextmanager
    def _cut(self, name: str) -> Iterator[None]:
        self.networks[name].cut()
        yield
        self.networks[name].mend()

    @contextlib.contextmanager
    def _move_clock(self, seconds: float, name: str) -> Iterator[None]:
        self._clocks[name].set(seconds)
        yield
        self._clocks[name].set(0)

    @contextlib.contextmanager
    def _expire(self, name: str) -> Iterator[None]:
        if name in self.replicas:
            self._credentials.revoke(name)
            yield
            within(partial(self._credentials.renew, name))
            return
        if name == CERTIFICATES:
            self.certificates.expire()
        else:
            for each in EVALUATORS:
                self._tokens.expire(each)
        for each in EVALUATORS:
            self._reconnect(self.networks[each])
        yield
        # The controller that renews them may be away; this tries again.
        if name == CERTIFICATES:
            within(self.certificates.mount)
        else:
            for each in EVALUATORS:
                within(partial(self._tokens.rotate, each))

    @staticmethod
    def _reconnect(network: Relay) -> None:
        was_open = network.open
        network.cut()
        network.open = was_open
