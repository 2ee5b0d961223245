"""What is made for a pod: an evaluator, ours or OpenFeature Operator's, its volumes, and variables of
applications. Pure.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from controller.delivery.standing_orders import ORDERS_LABEL
from controller.pods import flag_file as files
from controller.pods import installation
from controller.pods import source_settings as source
from controller.pods.annotation_values import choice, ports
from controller.pods.installation import Options, PodRefused, evaluator_of, flags_of, remark_of
from controller.pods.pod_orders import MARKED
from controller.pods.pod_settings import FOREVER, START, WAIT, PodSettings
from controller.runtime.plain_text import json_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


Mark: TypeAlias = tuple[str, str, str]
"""(labels or annotations, name, value) by which the controller finds a pod."""


class Mounted(NamedTuple):
    """A volume and its folder: a whole one, since what is mounted by `subPath` is never updated."""

    name: str
    source: Mapping[str, Any]
    """The volume without its name."""
    folder: str
    writable: bool = False

    @property
    def volume(self) -> dict[str, Any]:
        """Return the entry of the pod's `volumes`."""
        return {"name": self.name, **self.source}

    @property
    def mount(self) -> dict[str, Any]:
        """Return the entry of the container's `volumeMounts`."""
        return {"name": self.name, "mountPath": self.folder, **({} if self.writable else {"readOnly": True})}


@dataclass(frozen=True, slots=True)
class Addition:
    """The same for a pod that gets an evaluator and for an application that evaluates by itself."""

    record: Mapping[str, str]
    """What the pod's annotation says of all this."""
    variables: list[dict[str, Any]]
    """Of the containers that evaluate flags."""
    mounts: tuple[Mounted, ...]
    """Of these containers."""
    volumes: tuple[Mounted, ...]
    """Of the pod: those, and the evaluator's."""
    chosen: frozenset[str] | None
    """The containers that evaluate flags, by name; None: all."""
    early: bool
    """Whether init containers evaluate flags, too."""
    marks: tuple[Mark, ...]
    """Further annotations and labels of the pod."""
    remark: str
    """In one line, what was done to the pod."""
    warnings: tuple[str, ...]
    container: dict[str, Any] | None = None
    """The evaluator; None: the application evaluates by itself."""
    native: bool = False
    """Whether the evaluator is an init container that stays."""


class Injected(NamedTuple):
    """What distinguishes one injection from another."""

    image: str
    """The evaluator's; empty where the application evaluates by itself."""
    configuration: str
    """A digest of all else that was added; empty of pods that were injected before it was recorded."""


def record_of(
    followed: Mapping[str, str], container: Mapping[str, Any] | None, *added: object
) -> dict[str, str]:
    """The record: `followed`, the image of the evaluator's `container` where there is one, and a digest of
    the rest of it and of what else is `added`. Only `followed` changes as flags change.
    """
    image = {} if container is None else {"image": str(container["image"])}
    rest = {name: value for name, value in (container or {}).items() if name != "image"}
    text = json.dumps([rest, *added], sort_keys=True, default=sorted)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return {**followed, **image, "configuration": digest}


def read_injected(record: Mapping[str, Any]) -> Injected:
    """What a record says, which any client may have written."""
    return Injected(str(record.get("image", "")), str(record.get("configuration", "")))


def read_record(text: str | None) -> Injected | None:
    """Return the value of an annotation; None where there is none."""
    return None if text is None else read_injected(json_object(text) or {})


LOOPBACK: Final = "127.0.0.1"
"""The address of the sidecar. For `localhost`, some clients try ::1 first and no other."""
EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - clients come from outside
_PORT_NAMES: Final = {
    "flags-grpc": installation.PORT,
    "flags-mgmt": installation.MANAGEMENT_PORT,
    "flags-sync": installation.SYNC_PORT,
    "flags-ofrep": installation.OFREP_PORT,
}
_PLACES: Final = ("sidecar", installation.ON_NODE)
_POD_FIELDS: Final = {
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "POD_UID": "metadata.uid",
    "NODE_NAME": "spec.nodeName",
}
_USER: Final = 65532
"""The user that the image itself names."""
_ALIVE: Final = {"path": "/healthz", "port": "flags-mgmt", "scheme": "HTTP"}
_PROBES: Final = {
    "readinessProbe": {"httpGet": {**_ALIVE, "path": "/readyz"}, "periodSeconds": 5},
    "livenessProbe": {"httpGet": _ALIVE, "periodSeconds": 10, "timeoutSeconds": 3},
}
_OPENING_SECONDS: Final = 60
"""Seconds until ports are open, on a busy node."""
SECURITY: Final = {
    "runAsNonRoot": True,
    "runAsUser": _USER,
    "runAsGroup": _USER,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "privileged": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What pod security `restricted` asks for, and more."""


def make_container(wanted: PodSettings) -> dict[str, Any]:
    """The sidecar."""
    always = {"restartPolicy": "Always"} if wanted.native else {}
    probes = (
        {} if wanted.settings.probes_enabled is False else {"startupProbe": _startup_probe(wanted), **_PROBES}
    )
    return {
        "name": installation.CONTAINER,
        "image": wanted.image or wanted.options.image,
        **always,
        "args": _arguments(wanted),
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in _POD_FIELDS.items()
        ]
        + [variable for variable, evaluators, _ in source.variables(wanted.settings) if evaluators],
        "ports": [
            {"name": name, "containerPort": wanted.ports[annotation], "protocol": "TCP"}
            for name, annotation in _PORT_NAMES.items()
            if not (wanted.socket_path and annotation == installation.PORT)
        ],
        **probes,
        "resources": {part: dict(amounts) for part, amounts in wanted.resources.items()},
        "securityContext": SECURITY,
    }


def _startup_probe(wanted: PodSettings) -> dict[str, Any]:
    """The probe that applications wait for."""
    if wanted.missing == START:
        return {"httpGet": _ALIVE, "periodSeconds": 1, "failureThreshold": _OPENING_SECONDS}
    # Forever is eleven days, after which the evaluator's container is restarted and waits again.
    seconds = 1_000_000 if wanted.missing == FOREVER else math.ceil(wanted.start_deadline)
    return {
        "httpGet": {**_ALIVE, "path": "/startz"},
        "periodSeconds": 1,
        "failureThreshold": seconds + _OPENING_SECONDS,
    }


def application_variables(wanted: PodSettings, host: str = LOOPBACK) -> list[dict[str, Any]]:
    """Variables: of FeatureFlagSources, then by OpenFeature Operator's names, then of newer providers."""
    ports, settings = wanted.ports, wanted.settings
    values = {
        "MANAGEMENT_PORT": str(ports[installation.MANAGEMENT_PORT]),
        "PORT": str(ports[installation.PORT]),
        "RESOLVER": "rpc",
        **({"SOCKET_PATH": wanted.socket_path} if wanted.socket_path else {}),
        "HOST": host,
        "SYNC_PORT": str(ports[installation.SYNC_PORT]),
    }
    ours = {source.add_prefix(settings, name): text for name, text in values.items()}
    ours["OFREP_ENDPOINT"] = f"http://{host}:{ports[installation.OFREP_PORT]}"
    theirs = [variable for variable, _, applications in source.variables(settings) if applications]
    taken = {variable["name"] for variable in theirs}
    return [*theirs, *({"name": name, "value": text} for name, text in ours.items() if name not in taken)]


def _arguments(wanted: PodSettings) -> list[str]:
    options = wanted.options
    proxied: dict[str, Any] = {"uri": options.proxy_address, "provider": "grpc"}
    token = {"bearerTokenFile": f"{installation.TOKEN_PATH}/token"}
    secured = {"tls": True, "certPath": f"{installation.CA_PATH}/ca.crt"} if options.proxy_ca else {}
    sources = [
        entry if "provider" in entry else {**proxied, **entry, **token, **secured} for entry in wanted.follows
    ]
    # What the proxy learns of each file, in their order; nothing where one is read twice.
    read = sum(entry.get("provider") == files.PROVIDER for entry in wanted.follows)
    receipts = [{"selector": f"{file.namespace}/{file.name}"} for file in wanted.files]
    receipts = receipts if read == len(wanted.files) else []
    ports = wanted.ports
    listening = [f"--port={ports[installation.PORT]}"]
    if wanted.socket_path:
        # Only containers that mount the folder reach it, whatever their user.
        listening = [f"--socket-path={wanted.socket_path}", "--socket-mode=0666"]
    return [
        "start",
        source.escape(f"--sources={_json(sources)}"),
        *(f"--receipts-to={_json({**proxied, **receipt, **token, **secured})}" for receipt in receipts),
        f"--state-dir={installation.STATE_PATH}",
        # Applications ask over loopback; the kubelet and Prometheus come from outside.
        f"--host={EVERYWHERE if wanted.everywhere else LOOPBACK}",
        f"--management-host={EVERYWHERE}",
        *listening,
        f"--management-port={ports[installation.MANAGEMENT_PORT]}",
        f"--sync-port={ports[installation.SYNC_PORT]}",
        f"--ofrep-port={ports[installation.OFREP_PORT]}",
        f"--log-format={wanted.log_format}",
        f"--log-level={wanted.log_level}",
        *([f"--start-deadline={wanted.start_deadline:g}s"] if wanted.missing == WAIT else []),
        *source.arguments(wanted.settings),
    ]


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


KEPT: Final = frozenset({"otel_collector_uri"})
"""Fields of a FeatureFlagSource that mean something here alone."""
_TOKENS: Final = {
    "http": "stands in the pod's arguments, where everyone who may read pods reads it; bring these flags "
    "into the cluster by a FlagSource",
    "grpc": "is ignored: the evaluator sends none by gRPC; everyone who may read FeatureFlagSources reads "
    "this one, so remove it",
}
"""How a plain-text token is handled, by provider."""


def make_operators_container(wanted: PodSettings) -> dict[str, Any]:
    """The sidecar."""
    management = wanted.ports[installation.MANAGEMENT_PORT]
    probes = {
        name: {"httpGet": {"path": path, "port": management, "scheme": "HTTP"}, "initialDelaySeconds": 5}
        for name, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz"))
    }
    return {
        "name": installation.OPERATORS_CONTAINER,
        "image": wanted.image or wanted.options.image,
        "imagePullPolicy": "Always",
        **({"restartPolicy": "Always"} if wanted.native else {}),
        "args": _operators_arguments(wanted),
        "ports": [
            {"name": "management", "containerPort": management},
            {"name": "flagd", "containerPort": wanted.ports[installation.PORT]},
        ],
        "env": [
            # Ours lets every user of the pod connect, by a variable that stock flagd does not read.
            *([{"name": "FLAGSTAFF_SOCKET_MODE", "value": "0666"}] if wanted.socket_path else []),
            *(variable for variable, evaluators, _ in source.variables(wanted.settings) if evaluators),
            *_addresses(wanted),
        ],
        **({} if wanted.settings.probes_enabled is False else probes),
        "resources": {part: dict(amounts) for part, amounts in wanted.resources.items()},
        "securityContext": SECURITY,
    }


def operators_variables(wanted: PodSettings) -> list[dict[str, Any]]:
    """What an application reads. The operator gives it the credentials of object stores, too; we do not."""
    given = (variable for variable, _, applications in source.variables(wanted.settings) if applications)
    return [*given, *_addresses(wanted)]


def _addresses(wanted: PodSettings) -> list[dict[str, Any]]:
    settings = wanted.settings
    values = {
        "MANAGEMENT_PORT": str(wanted.ports[installation.MANAGEMENT_PORT]),
        "PORT": str(wanted.ports[installation.PORT]),
        "EVALUATOR": source.escape(settings.evaluator or "json"),
        "LOG_FORMAT": wanted.log_format,
        "RESOLVER": "rpc",
        "SOCKET_PATH": wanted.socket_path,
    }
    return [
        {"name": source.add_prefix(settings, name), "value": text} for name, text in values.items() if text
    ]


def _operators_arguments(wanted: PodSettings) -> list[str]:
    ports, settings = wanted.ports, wanted.settings
    sources = [_source(entry, wanted) for entry in wanted.follows]
    uri = settings.otel_collector_uri
    words = [
        "start",
        "--management-port", str(ports[installation.MANAGEMENT_PORT]),
        "--port", str(ports[installation.PORT]),
        "--sources", source.escape(json.dumps(sources, separators=(",", ":"))),
        *(["--debug"] if wanted.log_level == "debug" else []),
        *(["--metrics-exporter", "otel", "--otel-collector-uri", source.escape(uri)] if uri else []),
    ]  # fmt: skip
    for argument in source.arguments(settings):
        words += argument.split("=", 1)
    if wanted.socket_path and source.add_prefix(settings, "PORT") != "FLAGD_PORT":
        # The evaluator does not read the variable of this name; the operator forgets that.
        words += ["--socket-path", wanted.socket_path]
    return [*words, "--ofrep-port", str(ports[installation.OFREP_PORT])]


def asks_for_kubernetes(wanted: PodSettings) -> bool:
    """Whether the operator would let the pod's account read the API server."""
    settings = wanted.settings
    return any(source.provider_of(entry, settings) == source.KUBERNETES for entry in settings.sources)


def _source(given: Mapping[str, Any], wanted: PodSettings) -> dict[str, Any]:
    if "provider" in given:
        return dict(given)
    selector = given["selector"]
    if selector in wanted.direct:
        return {"uri": selector, "provider": source.KUBERNETES}
    address = wanted.options.proxy_address
    return {"uri": address, "provider": "grpc", "selector": f"core.openfeature.dev/{selector}"}


def operators_warnings(wanted: PodSettings) -> tuple[str, ...]:
    """Return warnings about settings that the operator accepts and that cause trouble."""
    messages = [
        f"FeatureFlagSource: sources[{number}]: httpSyncBearerToken {_TOKENS[provider]}"
        for number, entry in enumerate(wanted.settings.sources)
        if (provider := source.provider_of(entry, wanted.settings)) in _TOKENS
        and entry.http_sync_bearer_token
    ]
    if wanted.settings.on_missing_flags or wanted.settings.start_deadline:
        messages.append(
            "FeatureFlagSource: onMissingFlags and startDeadline need the controller without --compat"
        )
    return tuple(messages)


def make_addition(wanted: PodSettings, account: str | None) -> Addition:
    """What a pod with these settings gets; `account`: its service account, None for the default one."""
    container, options = evaluator(wanted), wanted.options
    mounted = mounts_of(wanted)
    beside = [mount.volume for mount in mounted], variables(wanted), wanted.containers
    operators_mark = ("annotations", installation.ALLOW_SYNC, "true")
    asks = options.compat and asks_for_kubernetes(wanted)
    remark = remark_of(wanted.scope, flags_of(wanted.followed), evaluator_of(str(container["image"])))
    return Addition(
        record=record_of(wanted.followed, container, *beside),
        variables=variables(wanted),
        mounts=socket(wanted),
        volumes=mounted,
        chosen=wanted.containers,
        # Before a plain sidecar no init container can ask it; OpenFeature Operator gives it to none.
        early=wanted.native and not options.compat,
        marks=(*([operators_mark] if asks else []), *marks(wanted, account)),
        remark=remark,
        warnings=container_warnings(wanted),
        container=container,
        native=wanted.native,
    )


_OF_A_SIDECAR: Final = (
    installation.IMAGE_ANNOTATION, installation.RESOURCES, installation.LOG_LEVEL, installation.SIDECAR,
    installation.PORT, installation.MANAGEMENT_PORT, installation.SYNC_PORT, installation.OFREP_PORT,
    installation.ON_MISSING, installation.START_DEADLINE, installation.SOCKET_PATH, installation.STATE_CLAIM,
    installation.TRANSPORT, installation.IN_PROCESS,
)  # fmt: skip
"""Annotations that say how a pod's own evaluator is."""
_NODE_ANNOTATION: Final = f"annotation {installation.EVALUATOR}: {installation.ON_NODE}"


def asks_node(annotations: Mapping[str, str]) -> bool:
    """Return whether a pod asks the evaluator of its node. Raises PodRefused for another word, and for
    annotations of an evaluator of its own beside.
    """
    asked = choice(annotations.get(installation.EVALUATOR), installation.EVALUATOR, _PLACES, _PLACES[0])
    beside = sorted(annotations.keys() & set(_OF_A_SIDECAR))
    if asked == installation.ON_NODE and beside:
        raise PodRefused(
            f"{_NODE_ANNOTATION}: annotation {beside[0]} is of an evaluator of the pod; remove one of both"
        )
    return asked == installation.ON_NODE


def make_node_addition(wanted: PodSettings) -> Addition:
    """What a pod gets that asks the evaluator of its node: its address. Raises PodRefused for what only an
    evaluator of its own can do.
    """
    where, options = _NODE_ANNOTATION, wanted.options
    if not options.node_host:
        raise PodRefused(f"{where}: there is no evaluator on the nodes; apply the component node-evaluator")
    if wanted.ordered:
        raise PodRefused(f"{where}: standing orders need an evaluator of the pod; remove the annotation")
    if wanted.socket_path or any("provider" in entry for entry in wanted.follows):
        raise PodRefused(
            f"{where}: its FeatureFlagSource has a socket, or a source that is no flag set of the cluster, "
            "which need an evaluator of the pod; remove one of both"
        )
    given = application_variables(replace(wanted, ports=ports({}, {})), options.node_host)
    words = remark_of(wanted.scope, flags_of(wanted.followed), "evaluator of the node")
    return Addition(
        record=record_of(wanted.followed, None, given, wanted.containers),
        variables=given,
        mounts=(),
        volumes=(),
        chosen=wanted.containers,
        early=True,
        marks=tuple(proxy_marks(options)),
        remark=words,
        warnings=container_warnings(wanted),
    )


def container_warnings(wanted: PodSettings) -> tuple[str, ...]:
    """Return warnings of settings that are ignored or cause problems, whatever the pod is."""
    if wanted.options.compat:
        unused = source.warnings(wanted.settings, KEPT)
        return (*wanted.warnings, *unused, *operators_warnings(wanted))
    return (*wanted.warnings, *source.warnings(wanted.settings))


def evaluator(wanted: PodSettings) -> dict[str, Any]:
    """The evaluator's container."""
    made = make_operators_container(wanted) if wanted.options.compat else make_container(wanted)
    mounts = [mount.mount for mount in mounts_of(wanted)]
    return {**made, **({"volumeMounts": mounts} if mounts else {})}


def volumes(wanted: PodSettings) -> list[dict[str, Any]]:
    """What that container mounts."""
    return [mount.volume for mount in mounts_of(wanted)]


def variables(wanted: PodSettings) -> list[dict[str, Any]]:
    """The variables of the application's containers."""
    return operators_variables(wanted) if wanted.options.compat else application_variables(wanted)


def marks(wanted: PodSettings, account: str | None) -> Iterator[tuple[str, str, str]]:
    """(labels or annotations, name, value) of a pod that the controller is to find."""
    yield from files.marks(wanted.files)
    if wanted.ordered:
        yield "labels", ORDERS_LABEL, MARKED
    direct = wanted.direct
    asked = any(source.get("selector") not in direct for source in wanted.follows if "provider" not in source)
    if asked or (wanted.files and not wanted.options.compat):
        yield from proxy_marks(wanted.options)
    if direct:
        yield "labels", installation.FLAG_READER, "true"
        yield "annotations", installation.FLAG_READER, account or "default"


def proxy_marks(options: Options) -> Iterator[tuple[str, str, str]]:
    """Return the marks, as `marks` does, for a pod whose evaluator asks the proxy."""
    if options.proxy_on_demand:
        yield "labels", installation.PROXIED, "true"


def mounts_of(wanted: PodSettings) -> tuple[Mounted, ...]:
    """Return all volumes of the evaluator's container."""
    options = wanted.options
    if options.compat:
        # Stock flagd ends where there is no file.
        return (*socket(wanted), *_files(wanted, optional=False))
    token = {"path": "token", "audience": options.proxy_audience, "expirationSeconds": 3600}
    projected = {"projected": {"sources": [{"serviceAccountToken": token}]}}
    # Of the folder: twice the most that a source may deliver, with room to replace it.
    claimed = {"persistentVolumeClaim": {"claimName": wanted.claim}}
    state = claimed if wanted.claim else {"emptyDir": {"sizeLimit": "256Mi"}}
    return (
        Mounted(installation.TOKEN, projected, installation.TOKEN_PATH),
        Mounted(installation.STATE, state, installation.STATE_PATH, writable=True),
        *socket(wanted),
        # The startup probe says how long an application waits for flags.
        *_files(wanted, optional=True),
        *_tokens(wanted),
        *authority(options),
    )


def socket(wanted: PodSettings) -> tuple[Mounted, ...]:
    """The volume of the Unix socket, where there is one; the application's containers mount it, too."""
    folder = wanted.socket_path.rpartition("/")[0]
    memory = {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
    return (Mounted(installation.SOCKET, memory, folder, writable=True),) if folder else ()


def authority(options: Options) -> tuple[Mounted, ...]:
    """The volume of the authority that signed the proxy's certificate, where there is one."""
    source = {"configMap": {"name": options.proxy_ca, "optional": True}}
    return (Mounted(installation.CA, source, installation.CA_PATH),) if options.proxy_ca else ()


def _files(wanted: PodSettings, *, optional: bool) -> Iterator[Mounted]:
    """Return a volume for each flag set in a file. `optional`: the pod starts without its ConfigMap, too."""
    more = {"optional": True} if optional else {}
    for number, file in enumerate(wanted.files):
        yield Mounted(f"flagstaff-file-{number}", {"configMap": {"name": file.name, **more}}, file.folder)


def _tokens(wanted: PodSettings) -> Iterator[Mounted]:
    """Return a volume for each source's token. A pod starts without the Secret, too."""
    items = [{"key": files.TOKEN_KEY, "path": files.TOKEN_KEY}]
    for number, flag_source in enumerate(wanted.settings.sources):
        if flag_source.secret_ref:
            secret = {"secretName": flag_source.secret_ref.name, "items": items, "optional": True}
            yield Mounted(f"flagstaff-source-{number}", {"secret": secret}, files.token_folder(number))
