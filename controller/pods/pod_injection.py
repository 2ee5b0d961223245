"""A pod in, the pod with its evaluator out: for the webhook and for `flagstaff inject` alike. Pure."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from controller.api import inprocessconfiguration
from controller.api.inprocessconfiguration import DEFAULTS, InProcessConfigurationSpec
from controller.delivery.standing_orders import ORDERS_LABEL, asks_for_order
from controller.pods import installation
from controller.pods import source_settings as source
from controller.pods.changes import ObjectPatch
from controller.pods.evaluator_container import (
    Addition,
    Mounted,
    asks_node,
    authority,
    make_addition,
    make_node_addition,
    proxy_marks,
    record_of,
)
from controller.pods.installation import (
    EXTERNAL,
    REFRESHABLE,
    SERVED,
    TEMPLATES,
    Known,
    Options,
    PodRefused,
    flags_of,
    remark_annotations,
    remark_of,
    scope_of,
)
from controller.pods.near_misses import near_misses
from controller.pods.pod_orders import ALONE, MARKED, Surroundings, is_ordered, orders_selector
from controller.pods.pod_settings import PodSettings, read, read_in_process, wants_evaluator
from controller.pods.source_settings import ForeignVariable
from controller.runtime.plain_text import json_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from controller.pods.annotation_values import PodReferences


_LISTS: Final = ("initContainers", "containers")
_OF_CONTAINERS: Final = (
    ("env", "name", "[{name: LOG_LEVEL, value: info}]"),
    ("volumeMounts", "mountPath", "[{name: data, mountPath: /data}]"),
    ("ports", "name", "[{name: http, containerPort: 8080}]"),
)
"""Lists: the field, the text by which its objects are known, and an example."""


MOST_CONTAINERS: Final = 256
MOST_KEYS: Final = 1_000
"""Labels, and annotations, of a pod."""
MOST_ENTRIES: Final = 10_000
"""Variables, mounts and ports of all containers, and volumes."""


def check_form(pod: Mapping[str, Any], annotations: Mapping[Any, Any]) -> None:
    """Raise Refused for what the other functions cannot read, or not within the time of a review."""
    labels, spec = pod["metadata"].get("labels"), pod.get("spec")
    if not isinstance(labels, dict | None):
        raise PodRefused("metadata.labels: is no object; write labels such as {app: shop}")
    if not isinstance(spec, dict):
        raise PodRefused("spec: is no object; write a pod's spec")
    for part in _LISTS:
        if not isinstance(spec.get(part), list | None):
            raise PodRefused(f"spec.{part}: is no list; write one such as [{{name: app, image: app:1}}]")
    every = [entry for part in _LISTS for entry in spec.get(part) or ()]
    _check_counts(spec, every, {"annotations": annotations, "labels": labels or {}})
    for name, text in annotations.items():
        if not (isinstance(name, str) and isinstance(text, str)):
            raise PodRefused(f"annotation {name}: is no string; put it in quotes")
    _check_list(spec, "spec.", "volumes", "name", "[{name: data, emptyDir: {}}]")
    for container in every:
        if not (isinstance(container, dict) and isinstance(container.get("name"), str)):
            raise PodRefused("spec.containers: each must be an object with a name; add it")
        for field in _OF_CONTAINERS:
            _check_list(container, f"container {container['name']}: ", *field)
    if not spec.get("containers"):
        raise PodRefused("spec.containers: is empty; add the application's container")


def _check_counts(
    spec: Mapping[str, Any], every: list[Any], metadata: Mapping[str, Mapping[Any, Any]]
) -> None:
    for part, keys in metadata.items():
        _check_count(f"metadata.{part}", len(keys), MOST_KEYS)
    _check_count("spec.containers and spec.initContainers", len(every), MOST_CONTAINERS)
    lists = (
        container.get(field)
        for container in every
        if isinstance(container, dict)
        for field, *_ in _OF_CONTAINERS
    )
    entries = sum(
        len(entries_of_one)
        for entries_of_one in (spec.get("volumes"), *lists)
        if isinstance(entries_of_one, list)
    )
    _check_count("spec: variables, mounts, ports and volumes", entries, MOST_ENTRIES)


def _check_count(where: str, count: int, most: int) -> None:
    if count > most:
        raise PodRefused(f"{where}: there are {count}; a pod that gets an evaluator has at most {most}")


def _check_list(holder: Mapping[str, Any], where: str, field: str, known_by: str, example: str) -> None:
    entries = holder.get(field)
    if entries is None:
        return
    if not (isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)):
        raise PodRefused(f"{where}{field}: is no list of objects; write one such as {example}")
    if not all(isinstance(entry.get(known_by), str | None) for entry in entries):
        raise PodRefused(f"{where}{field}: a {known_by} is no text; write it as in {example}")


def containers(pod: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """Each container with its path, in the order in which they start."""
    for part in _LISTS:
        for number, container in enumerate(pod["spec"].get(part) or ()):
            yield ("spec", part, number), container


def mount_paths(container: Mapping[str, Any]) -> set[Any]:
    """The paths that volumes are mounted at."""
    return {mount.get("mountPath") for mount in container.get("volumeMounts") or ()}


def ports_of(container: Mapping[str, Any]) -> Iterator[int]:
    """The numbers that a container is known to listen on."""
    for port in container.get("ports") or ():
        if port.get("protocol", "TCP") == "TCP":
            number = port.get("containerPort")
            if isinstance(number, int):
                yield number
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        probe = container.get(name)
        for asked in probe.values() if isinstance(probe, dict) else ():
            if isinstance(asked, dict) and isinstance(asked.get("port"), int):
                yield asked["port"]


def require_containers(pod: Mapping[str, Any], chosen: frozenset[str] | None) -> None:
    """Raise Refused where the pod lacks a container that its annotation names."""
    present = {container["name"] for _, container in containers(pod)}
    for name in sorted((chosen or frozenset()) - present):
        raise PodRefused(
            f"annotation {installation.CONTAINERS}: the pod has no container {name[:63]!r}; "
            f"it has {', '.join(sorted(present))}"
        )


def pod_warnings(pod: Mapping[str, Any], wanted: PodSettings) -> tuple[str, ...]:
    """Return warnings about problems of this pod."""
    messages: tuple[str, ...] = ()
    if wanted.options.compat:
        messages += (*taken_ports(pod, wanted),)
    security = pod["spec"].get("securityContext")
    if wanted.claim and not (isinstance(security, dict) and security.get("fsGroup")):
        messages += (
            f"annotation {installation.STATE_CLAIM}: set fsGroup in the pod's securityContext, "
            "such as 65532, "
            "or the evaluator may not write there",
        )
    return messages


def taken_ports(pod: Mapping[str, Any], wanted: PodSettings) -> Iterator[str]:
    """The evaluator's ports that the application uses itself, with what to do."""
    by_number = {
        number: annotation
        for annotation, number in wanted.ports.items()
        if not (wanted.socket_path and annotation == installation.PORT)
    }
    for _, container in containers(pod):
        for port in ports_of(container) if container["name"] != wanted.options.container else ():
            if port in by_number:
                yield (
                    f"container {container['name']}: uses port {port}, which is the evaluator's; "
                    f"give the evaluator another with the annotation {by_number[port]}"
                )


_VARIABLES: Final = {
    "HOST": "host",
    "PORT": "port",
    "TLS": "tls",
    "CACHE": "cache",
    "MAX_CACHE_SIZE": "cache_max_size",
    "RESOLVER": "resolver",
    "SOCKET_PATH": "socket_path",
    "OFFLINE_FLAG_SOURCE_PATH": "offline_flag_source_path",
    "SOURCE_SELECTOR": "selector",
    "SERVER_CERT_PATH": "server_cert_path",
}


def make_in_process(
    annotations: Mapping[str, str], namespace: str, options: Options, known: Known
) -> tuple[Addition, str]:
    """(what the InProcessConfigurations that the annotations name require; the flag set that the application
    asks our proxy for, as `NAMESPACE/NAME`, empty where it asks another server). Raises Refused.
    """
    asked, specs, chosen, referring = read_in_process(annotations, namespace, known, compat=options.compat)
    given = _merge(specs)
    elsewhere = {"host", "socket_path", "offline_flag_source_path"}
    asks = not options.compat and elsewhere.isdisjoint(given)
    proxied = _proxy_settings(given, options, referring) if asks else {}
    variables = _variables({**DEFAULTS, **given, **proxied, "resolver": "in-process"}, specs)
    mounts = authority(options) if asks else ()
    followed = {"from": ",".join(f"InProcessConfiguration/{name}" for name in asked)}
    selector = proxied.get("selector", "")
    remark = remark_of(_scope(given, selector, namespace), flags_of(followed), "evaluates in process")
    addition = Addition(
        record=record_of(followed, None, variables, mounts[0].folder if mounts else "", chosen),
        variables=variables,
        mounts=mounts,
        volumes=mounts,
        chosen=chosen,
        early=not options.compat,
        marks=(*(proxy_marks(options) if proxied else ()),),
        remark=remark,
        warnings=tuple(referring.warnings),
    )
    return addition, selector


def _scope(given: Mapping[str, Any], selector: str, namespace: str) -> tuple[str, ...]:
    """The words of remarks; `selector`: of our proxy's flag set, empty for another server or a file."""
    if "offline_flag_source_path" in given:
        return (EXTERNAL,)
    if not selector:
        return (EXTERNAL, REFRESHABLE)
    return scope_of([{"selector": selector}], namespace)


def _merge(specs: Sequence[InProcessConfigurationSpec]) -> dict[str, Any]:
    """Merge the settings: a later one wins; values that it lacks, or has by default, stay."""
    merged: dict[str, Any] = {}
    for spec in specs:
        for name in spec.model_fields_set - {"env_vars"}:
            value = getattr(spec, name)
            if value not in (None, "") and value != DEFAULTS.get(name):
                merged[name] = value
    return merged


def _variables(
    settings: Mapping[str, Any], specs: Sequence[InProcessConfigurationSpec]
) -> list[dict[str, Any]]:
    variables = []
    for name, field in _VARIABLES.items():
        value = settings.get(field)
        if value not in (None, ""):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            variables.append({"name": _add_prefix(settings, name), "value": text})
    theirs = [_variable(variable, settings) for variable in source.operators_variables(specs)]
    own = {variable["name"] for variable in theirs}
    return [*theirs, *(variable for variable in variables if variable["name"] not in own)]


def _variable(variable: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """One of the envVars as containers have it. Raises Refused."""
    if isinstance(variable, ForeignVariable):
        return dict(variable)
    name = _add_prefix(settings, source.variable_name(variable, inprocessconfiguration.KIND))
    source.check_harmless(name, inprocessconfiguration.KIND)
    return {**variable, "name": name}


def _proxy_settings(given: Mapping[str, Any], options: Options, referring: PodReferences) -> dict[str, Any]:
    """Return the settings with which an in-process provider asks our proxy."""
    selector = str(given.get("selector") or "")
    if not selector:
        raise PodRefused(
            "InProcessConfiguration: selector is missing; write the name of a flag set, or the host of "
            "a server of your own"
        )
    where = "InProcessConfiguration: selector"
    place, name = source.flag_set_place(selector, where)
    referring.permit(SERVED, place, name, where)
    host, _, port = options.proxy_address.rpartition(":")
    secured = {"tls": True, "server_cert_path": f"{installation.CA_PATH}/ca.crt"} if options.proxy_ca else {}
    selector = f"{place or referring.namespace}/{name}"
    return {"host": host, "port": port, "tls": False, "selector": selector, **secured}


def _add_prefix(settings: Mapping[str, Any], name: str) -> str:
    prefix = str(settings["env_var_prefix"]).strip()
    return f"{prefix}_{name}" if prefix else name


MOST_BYTES: Final = 1_048_576
"""Of the answer to a review."""


def inject(
    pod: Mapping[str, Any], namespace: str, options: Options, known: Known, around: Surroundings = ALONE
) -> ObjectPatch | None:
    """What is added to a pod of `namespace`, or to a workload's template of one; None where it asks for
    nothing and nothing is ordered for it. An injected pod stays as it is, but for containers that came later.
    Raises Refused.
    """
    meta = pod.get("metadata")
    annotations = (meta.get("annotations") or {}) if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or not isinstance(annotations, dict):
        return None
    if not wants_evaluator(annotations, ordered=is_ordered(meta, around)):
        return None
    check_form(pod, annotations)
    on_node = asks_node(annotations)
    if _evaluates_itself(annotations):
        addition, _ = make_in_process(annotations, namespace, options, known)
        return _add_variables(pod, _with_near_misses(pod, addition))
    orders = orders_selector(meta, namespace, known, around)
    wanted = read(annotations, namespace, options, known, orders)
    if on_node:
        if pod["spec"].get("hostNetwork"):
            raise PodRefused(
                f"annotation {installation.EVALUATOR}: the node's evaluator knows a pod by its address, and "
                "this one has the node's (hostNetwork); remove the annotation"
            )
        return _add_variables(pod, _with_near_misses(pod, make_node_addition(wanted)))
    addition = make_addition(wanted, pod["spec"].get("serviceAccountName"))
    return _add_evaluator(pod, wanted, _with_near_misses(pod, addition))


def _with_near_misses(pod: Mapping[str, Any], addition: Addition) -> Addition:
    """The addition, with a warning and a remark for what else the pod nearly asked for."""
    misses = [miss.message for miss in near_misses({**pod, "kind": "Pod"})]
    remark = remark_of((addition.remark,), *misses)
    return replace(addition, remark=remark, warnings=(*addition.warnings, *misses))


def record_now(
    annotations: Mapping[str, str], namespace: str, options: Options, known: Known, orders: str = ""
) -> Mapping[str, str] | None:
    """Return `flagstaff.dev/injected` for a new pod, whose standing orders have the selector `orders`; None:
    it wants no evaluator. Raises Refused.
    """
    if not wants_evaluator(annotations, ordered=bool(orders)):
        return None
    on_node = asks_node(annotations)
    if _evaluates_itself(annotations):
        return make_in_process(annotations, namespace, options, known)[0].record
    wanted = read(annotations, namespace, options, known, orders)
    if on_node:
        return make_node_addition(wanted).record
    return make_addition(wanted, None).record


def _add_variables(pod: Mapping[str, Any], addition: Addition) -> ObjectPatch:
    """For an application that evaluates by itself: no container."""
    changes = ObjectPatch(pod)
    changes.warnings = addition.warnings
    require_containers(pod, addition.chosen)
    present = {volume.get("name") for volume in pod["spec"].get("volumes") or ()}
    _add_volumes(changes, [mounted for mounted in addition.volumes if mounted.name not in present])
    _add_to_clients(changes, addition, "")
    given = json_object(str((pod["metadata"].get("annotations") or {}).get(installation.INJECTED, "")))
    if changes.patch or given != addition.record:
        _record(changes, addition)
    return changes


def _add_evaluator(pod: Mapping[str, Any], wanted: PodSettings, addition: Addition) -> ObjectPatch:
    changes, options = ObjectPatch(pod), wanted.options
    annotations = pod["metadata"].get("annotations") or {}
    if options.compat and installation.INJECTED not in annotations and _has_container(pod, options):
        changes.warnings = (f"container {options.container}: the pod brings its own, which stays as it is",)
        return changes
    changes.warnings = (*addition.warnings, *pod_warnings(pod, wanted))
    if not _is_injected(pod, annotations, wanted):
        _check_free(pod, wanted, addition)
        container = _with_access(addition.container or {}, pod)
        # First, so that the init containers behind it can evaluate.
        part = "initContainers" if addition.native else "containers"
        changes.extend(("spec", part), [container], first=addition.native)
        _add_volumes(changes, addition.volumes)
        _record(changes, addition)
    _add_to_clients(changes, addition, options.container)
    return changes


def _add_to_clients(changes: ObjectPatch, addition: Addition, evaluator: str) -> None:
    """Variables that the application sets itself stay."""
    clients = [*_clients(changes.after, addition, evaluator)]
    # What would not fit into an answer is not made.
    size = len(json.dumps(addition.variables)) * len(clients)
    if size > MOST_BYTES:
        raise PodRefused(
            f"the evaluator's variables for {len(clients)} containers have {size} bytes, and an answer has "
            f"at most {MOST_BYTES}; name fewer with the annotation {installation.CONTAINERS}, or shorten "
            "envVars"
        )
    for path, client in clients:
        own, folders = {variable.get("name") for variable in client.get("env") or ()}, mount_paths(client)
        variables = [variable for variable in addition.variables if variable["name"] not in own]
        changes.extend((*path, "env"), variables)
        mounts = [mounted.mount for mounted in addition.mounts if mounted.folder not in folders]
        changes.extend((*path, "volumeMounts"), mounts)


def _clients(
    pod: Mapping[str, Any], addition: Addition, evaluator: str
) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """The containers that evaluate flags; `evaluator`: the name of the one that does it for them."""
    for path, container in containers(pod):
        chosen = addition.chosen is None or container["name"] in addition.chosen
        if chosen and container["name"] != evaluator and (addition.early or path[1] == "containers"):
            yield path, container


def _add_volumes(changes: ObjectPatch, volumes: Iterable[Mounted]) -> None:
    changes.extend(("spec", "volumes"), [mounted.volume for mounted in volumes])


def _record(changes: ObjectPatch, addition: Addition) -> None:
    text = json.dumps(addition.record, separators=(",", ":"))
    remarks = remark_annotations(addition.remark, changes.after["metadata"].get("annotations") or {})
    written = (
        ("annotations", name, value) for name, value in {installation.INJECTED: text, **remarks}.items()
    )
    for part, name, value in (*written, *addition.marks):
        if changes.after["metadata"].get(part):
            changes.set(("metadata", part, name), value)
        else:
            changes.set(("metadata", part), {name: value})


def _evaluates_itself(annotations: Mapping[str, Any]) -> bool:
    """Whether the application does, so that it gets variables alone."""
    return installation.IN_PROCESS in annotations and not annotations.keys() & {
        installation.SOURCES,
        installation.FLAG_SET,
        installation.DIRECT_SET,
    }


def _has_container(pod: Mapping[str, Any], options: Options) -> bool:
    return any(container["name"] == options.container for _, container in containers(pod))


def _is_injected(pod: Mapping[str, Any], annotations: Mapping[str, str], wanted: PodSettings) -> bool:
    given = annotations.get(installation.INJECTED)
    container = wanted.options.container
    present = _has_container(pod, wanted.options)
    if given is None and present:
        raise PodRefused(
            f"container {container}: the pod has one of this name already; remove it, or set "
            f"{installation.ENABLED} to false to keep your own"
        )
    if given is None or not present:
        return False
    # A FeatureFlagSource may have changed since: the pod keeps what it was given.
    field = "from" if installation.sources(annotations) else "flagSet"
    before = (json_object(given) or {}).get(field)
    if before != wanted.followed[field]:
        raise PodRefused(
            f"annotation {installation.INJECTED}: the pod's evaluator follows {before}, and the pod now asks "
            f"for {wanted.followed[field]}; remove the annotation and the container {container}"
        )
    return True


def _check_free(pod: Mapping[str, Any], wanted: PodSettings, addition: Addition) -> None:
    """Raise Refused where what is to be added is there, or a container that is named is not."""
    own = {mounted.name for mounted in addition.volumes}
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("name") in own:
            raise PodRefused(f"volume {volume['name']}: the evaluator's has this name; give yours another")
    require_containers(pod, wanted.containers)
    folders = {mounted.folder for mounted in addition.mounts}
    for _, client in _clients(pod, addition, wanted.options.container):
        for folder in folders & mount_paths(client):
            raise PodRefused(
                f"container {client['name']}: mounts a volume at {folder}, where the evaluator's socket "
                f"is to be; choose another with the annotation {installation.SOCKET_PATH}"
            )
    if not wanted.options.compat:
        for complaint in taken_ports(pod, wanted):
            raise PodRefused(complaint)


def _with_access(made: dict[str, Any], pod: Mapping[str, Any]) -> dict[str, Any]:
    """Add the volume of the API server's token, as the API server does itself: if that added it after us, it
    would have the pod reviewed a second time.
    """
    mounts = (
        mount
        for container in pod["spec"]["containers"]
        for mount in container.get("volumeMounts") or ()
        if mount.get("mountPath") == "/var/run/secrets/kubernetes.io/serviceaccount"
    )
    token_mount = next(mounts, None)
    if token_mount is None or not str(token_mount.get("name")).startswith("kube-api-access-"):
        return made
    return {**made, "volumeMounts": [*made.get("volumeMounts", ()), token_mount]}


def inject_manifest(manifest: Any, namespace: str, options: Options, known: Known) -> Any:
    """A manifest with its pods' template injected, or as it is where it has none or asks for nothing.

    `namespace` is that of manifests that name none. Raises Refused, which names the object.
    """
    if not isinstance(manifest, dict):
        return manifest
    if manifest.get("kind") == "List" and isinstance(manifest.get("items"), list):
        return {
            **manifest,
            "items": [inject_manifest(item, namespace, options, known) for item in manifest["items"]],
        }
    path = TEMPLATES.get(str(manifest.get("kind")))
    if path is None:
        return manifest
    meta = manifest.get("metadata")
    own = meta if isinstance(meta, dict) else {}
    where = own.get("namespace") or namespace
    try:
        return _with_template(manifest, path, str(where), options, known)
    except PodRefused as refusal:
        raise PodRefused(f"{manifest['kind']} {where}/{own.get('name', '')}: {refusal}") from None


def _with_template(
    manifest: Mapping[str, Any], path: tuple[str, ...], namespace: str, options: Options, known: Known
) -> Any:
    made: Any = copy.deepcopy(dict(manifest))
    around = _surroundings(made) if path else ALONE
    holder, template = None, made
    for step in path:
        holder, template = template, template.get(step)
        if not isinstance(template, dict):
            raise PodRefused(f"{'.'.join(path)}: is no object; write a pod's template")
    changes = inject(template, namespace, options, known, around)
    if changes is None:
        return manifest
    if holder is None:
        return changes.after
    holder[path[-1]] = changes.after
    return made


def _surroundings(workload: dict[str, Any]) -> Surroundings:
    """What its pods' orders depend on. A workload with an order gets the label by which proxies find it."""
    meta = workload.get("metadata")
    annotations = meta.get("annotations") if isinstance(meta, dict) else None
    asks = isinstance(annotations, dict) and asks_for_order(annotations)
    if asks and isinstance(meta, dict):
        meta["labels"] = {**(meta.get("labels") or {}), ORDERS_LABEL: MARKED}
    name = str(meta.get("name", "")) if isinstance(meta, dict) else ""
    return Surroundings({} if asks else None, (str(workload["kind"]), name) if name else ("", ""))
