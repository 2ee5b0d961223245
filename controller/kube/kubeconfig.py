"""Reads a kubeconfig, or the service account of the pod, and makes the official client of it.

The official client reads a kubeconfig once. The tokens in it have an end: those of cloud providers' exec
plugins after minutes, and those that another program writes to a file once they are replaced. So the token is
read again once the API server refuses it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import ssl
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import yaml
from kubernetes.aio import client, config

from evaluator.host.system_proxies import system_proxy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator


_MOST_BYTES: Final = 4 * 1024 * 1024
_ABSENT: Final = re.compile(r"Expected object with name (.+) in .*/(context|cluster|user)s list")
_NO_KEY: Final = re.compile(r"Expected key (\S+) in")
_LISTS: Final = ("clusters", "contexts", "users")
_DEFAULT_NAMESPACE: Final = "default"
_POD_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class LoadedConfiguration(NamedTuple):
    """A client's configuration, and where it comes from."""

    configuration: client.Configuration
    context: str | None
    """The name of the kubeconfig's context; None in a pod."""
    namespace: str
    """The namespace of the context or of the pod; `default` where none is named."""


async def load_configuration(kubeconfig: str | None, context: str | None = None) -> LoadedConfiguration:
    """Return what a client needs to reach the cluster of a kubeconfig's context, the current one by default.

    Without a kubeconfig, $KUBECONFIG or the default file is read, else the pod's service account. Raises
    ConfigException, whose text says what is wrong with which file.
    """
    configuration = client.Configuration()
    named = kubeconfig or config.KUBE_CONFIG_DEFAULT_LOCATION
    files = [*_existing_files(named)]
    if files:
        for file in files:
            _require_kubeconfig(file)
        try:
            loader = await config.load_kube_config(kubeconfig or None, context, configuration)
            _require_client(configuration)
        except (
            config.ConfigException,
            OSError,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
        ) as error:
            raise config.ConfigException(_reason(named, error)) from error
        chosen = loader.current_context
        namespace = chosen["context"].get("namespace")
        return LoadedConfiguration(configuration, str(chosen["name"]), str(namespace or _DEFAULT_NAMESPACE))
    if kubeconfig:
        raise config.ConfigException(f"{kubeconfig}: no such file")
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException as error:
        message = (
            f"no kubeconfig found ({config.KUBE_CONFIG_DEFAULT_LOCATION}), and not running in a pod; "
            "set KUBECONFIG or --kubeconfig"
        )
        raise config.ConfigException(message) from error
    namespace = _POD_NAMESPACE.read_text(encoding="utf-8").strip() if _POD_NAMESPACE.is_file() else ""
    return LoadedConfiguration(configuration, None, namespace or _DEFAULT_NAMESPACE)


def _existing_files(paths: str) -> Iterator[Path]:
    """The kubeconfigs that exist, of paths separated as in $KUBECONFIG."""
    for path in paths.split(os.pathsep):
        if path and (file := Path(path).expanduser()).exists():
            yield file


def _require_kubeconfig(file: Path) -> None:
    """Raise ConfigException for a file without the lists of a kubeconfig."""
    try:
        with file.open("rb") as opened:
            document: Any = yaml.safe_load(opened.read(_MOST_BYTES).decode())
    except OSError as error:
        raise config.ConfigException(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise config.ConfigException(f"{file} is not a kubeconfig: it is not text") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else str(file)
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        if "'\\t'" in problem:
            problem = "a tab stands where only spaces may be"
        raise config.ConfigException(f"{where}: not YAML: {problem}") from error
    if not isinstance(document, dict):
        raise config.ConfigException(f"{file} is not a kubeconfig: it is not a mapping of clusters and users")
    for name in _LISTS:
        entries = document.get(name) or []
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise config.ConfigException(f"{file} is not a kubeconfig: {name} must be a list of objects")
    _require_plugin(file, document)


def _require_plugin(file: Path, document: dict[str, Any]) -> None:
    """Raise ConfigException where the current user's credentials come from a program that is not there."""
    context = _entry_of(document.get("contexts"), document.get("current-context"), "context")
    name = context.get("user")
    plugin = _entry_of(document.get("users"), name, "user").get("exec")
    command = plugin.get("command") if isinstance(plugin, dict) else None
    # A relative path is one of the kubeconfig's folder, which only the client resolves.
    if isinstance(command, str) and os.sep not in command and shutil.which(command) is None:
        raise config.ConfigException(
            f"{file}: the program {command!r}, which gives user {name!r} its credentials, is not "
            "installed or not in PATH"
        )


def _entry_of(entries: Any, name: object, key: str) -> dict[str, Any]:
    """Return what the entry of this name has under `key`; nothing where it is malformed or missing."""
    values = (entry.get(key) for entry in entries or () if entry.get("name") == name)
    value = next(values, None)
    return value if isinstance(value, dict) else {}


def _require_client(configuration: client.Configuration) -> None:
    """Raise ValueError or OSError for a server or certificates that no client can use."""
    url = urlsplit(configuration.host)
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise ValueError(f"server {configuration.host!r} is not a URL such as https://HOST:6443")
    if configuration.ssl_ca_cert:
        ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        ssl.create_default_context().load_cert_chain(configuration.cert_file, configuration.key_file)


def _reason(named: str, error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"{named}: a certificate or key in it is not PEM, or the two do not belong together"
    if isinstance(error, config.ConfigException):
        return _library_reason(named, str(error))
    if isinstance(error, RecursionError):
        return f"{named} cannot be used: an alias in it contains itself"
    if isinstance(error, OSError):
        return f"{named}: {error.filename or 'a file that it names'}: {error.strerror or error}"
    if isinstance(error, KeyError):
        return f"{named} is not a complete kubeconfig: {error} is missing"
    return f"{named} cannot be used: {error}"


def _library_reason(named: str, text: str) -> str:
    if (absent := _ABSENT.search(text)) is not None:
        return f"{named}: there is no {absent[2]} named {absent[1]}; correct what refers to it"
    if (key := _NO_KEY.search(text)) is not None:
        return f"{named} is not a complete kubeconfig: {key[1]} is missing"
    words = text.removeprefix("Invalid kube-config file. ").replace("does not exists", "does not exist")
    return words if named in words else f"{named}: {words}"


log = logging.getLogger(__name__)

_TOKEN: Final = "BearerToken"  # noqa: S105 - the client's name of it
_HEADER: Final = "authorization"


@dataclass(frozen=True, slots=True)
class CredentialTiming:
    """How often credentials are read again, in seconds."""

    pause: float = 10.0
    """Least time between two reads of the kubeconfig, so that not each refusal starts an exec plugin."""
    patience: float = 15.0
    """How long a request waits for a plugin, which may ask a person."""


DEFAULT_TIMING: Final = CredentialTiming()


class ApiClient(client.ApiClient):
    """Repeats a request that was refused with 401, once, if a newer token is there."""

    def __init__(
        self,
        configuration: client.Configuration,
        load: Callable[[], Awaitable[client.Configuration]],
        timing: CredentialTiming = DEFAULT_TIMING,
    ) -> None:
        """`load` reads the credentials again."""
        # Otherwise aiohttp reads the proxies' variables and .netrc in two threads for each request.
        configuration.client_session_kwargs = {"trust_env": False}
        server = urlsplit(configuration.host)
        configuration.proxy = (
            configuration.proxy or system_proxy(server.scheme, server.hostname or "") or None
        )
        super().__init__(configuration)
        self._load = load
        self._loading: asyncio.Task[None] | None = None
        self._timing = timing
        self._began = -timing.pause

    async def close(self) -> None:
        """Close the connections, and stop waiting for a plugin."""
        if self._loading is not None:
            self._loading.cancel()
        await super().close()  # type: ignore[no-untyped-call]

    async def call_api(
        self, method: str, url: str, header_params: dict[str, Any] | None = None, *rest: Any, **more: Any
    ) -> Any:
        """Return the answer of the official client."""
        headers = dict(header_params or {})
        response = await super().call_api(method, url, headers, *rest, **more)
        if response.status != HTTPStatus.UNAUTHORIZED or not await self._renew(headers.get(_HEADER)):
            return response
        response.response.close()
        token = await self.configuration.get_api_key_with_prefix(_TOKEN)
        return await super().call_api(method, url, {**headers, _HEADER: token}, *rest, **more)

    async def _renew(self, refused: object) -> bool:
        """Whether there is another token than the one that was `refused`."""
        now = asyncio.get_running_loop().time()
        idle = self._loading is None or self._loading.done()
        if self._token == refused and idle and now - self._began >= self._timing.pause:
            self._began = now
            self._loading = asyncio.create_task(self._reload())
        if self._loading is not None:
            await asyncio.wait({self._loading}, timeout=self._timing.patience)
        return self._token not in {refused, None}

    @property
    def _token(self) -> object:
        return self.configuration.api_key.get(_TOKEN)

    async def _reload(self) -> None:
        try:
            configuration = await self._load()
        except Exception as error:  # noqa: BLE001 - the file may be anything while it is written
            log.warning("the credentials for the API server cannot be read again: %r", error)
            return
        if configuration.host != self.configuration.host:
            # A token is sent only to its own server.
            log.warning(
                "the kubeconfig names another API server by now, %s; restart to use it", configuration.host
            )
            return
        self.configuration.api_key = configuration.api_key
        self.configuration.refresh_api_key_hook = configuration.refresh_api_key_hook
