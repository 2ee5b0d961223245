"""What is made for a pod: an evaluator, ours or OpenFeature Operator's, its volumes, and variables. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.delivery.standing_orders import ORDERS_LABEL
from controller.pods.injection import operators_sidecar as operators
from controller.pods.injection import sidecar
from controller.pods.injection.addition import Addition, Mounted, record_of
from controller.pods.settings import flag_file as files
from controller.pods.settings import source_settings as source
from controller.pods.settings import well_known
from controller.pods.settings.pod_orders import MARKED
from controller.pods.settings.remarks import evaluator_of, flags_of, remark_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.pods.settings.installation import Options
    from controller.pods.settings.pod_settings import PodSettings


def make(wanted: PodSettings, account: str | None) -> Addition:
    """What a pod with these settings gets; `account`: its service account, None for the default one."""
    container, options = evaluator(wanted), wanted.options
    mounted = mounts_of(wanted)
    beside = [mount.volume for mount in mounted], variables(wanted), wanted.containers
    operators_mark = ("annotations", well_known.ALLOW_SYNC, "true")
    asks = options.compat and operators.asks_for_kubernetes(wanted)
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
        warnings=warnings(wanted),
        container=container,
        native=wanted.native,
    )


def warnings(wanted: PodSettings) -> tuple[str, ...]:
    """Return warnings of settings that are ignored or cause problems, whatever the pod is."""
    if wanted.options.compat:
        unused = source.warnings(wanted.settings, operators.KEPT)
        return (*wanted.warnings, *unused, *operators.warnings(wanted))
    return (*wanted.warnings, *source.warnings(wanted.settings))


def evaluator(wanted: PodSettings) -> dict[str, Any]:
    """The evaluator's container."""
    made = operators.container(wanted) if wanted.options.compat else sidecar.container(wanted)
    mounts = [mount.mount for mount in mounts_of(wanted)]
    return {**made, **({"volumeMounts": mounts} if mounts else {})}


def volumes(wanted: PodSettings) -> list[dict[str, Any]]:
    """What that container mounts."""
    return [mount.volume for mount in mounts_of(wanted)]


def variables(wanted: PodSettings) -> list[dict[str, Any]]:
    """The variables of the application's containers."""
    return operators.variables(wanted) if wanted.options.compat else sidecar.variables(wanted)


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
        yield "labels", well_known.FLAG_READER, "true"
        yield "annotations", well_known.FLAG_READER, account or "default"


def proxy_marks(options: Options) -> Iterator[tuple[str, str, str]]:
    """Return the marks, as `marks` does, for a pod whose evaluator asks the proxy."""
    if options.proxy_on_demand:
        yield "labels", well_known.PROXIED, "true"


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
        Mounted(well_known.TOKEN, projected, well_known.TOKEN_PATH),
        Mounted(well_known.STATE, state, well_known.STATE_PATH, writable=True),
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
    return (Mounted(well_known.SOCKET, memory, folder, writable=True),) if folder else ()


def authority(options: Options) -> tuple[Mounted, ...]:
    """The volume of the authority that signed the proxy's certificate, where there is one."""
    source = {"configMap": {"name": options.proxy_ca, "optional": True}}
    return (Mounted(well_known.CA, source, well_known.CA_PATH),) if options.proxy_ca else ()


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
