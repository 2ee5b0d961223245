"""Settings of the page."""

from __future__ import annotations

from pydantic import Field

from controller.app.settings.settings_values import Names, Port, SharedSettings


class PageSettings(SharedSettings):
    """One process of the page. A field is an option of `flagstaff page` and a variable FLAGSTAFF_<NAME>."""

    namespaces: Names = Field(
        default=(), description="namespaces that are shown, separated by commas (default all)"
    )
    page_host: str = Field(default="", description="address of --page-port (default: --host)")
    page_port: Port = Field(default=8080, description="port of the page; 0 takes a free port")
    tls_cert: str = Field(
        default="",
        description="PEM certificate of --page-port, read again when it changes (default: plain text)",
    )
    tls_key: str = Field(default="", description="private key of --tls-cert")
    tls_client_ca: str = Field(
        default="", description="CAs that must have issued clients' certificates (default: none needed)"
    )
    auth_audiences: Names = Field(
        default=(),
        description="audiences, separated by commas, one of which a token must name (default: the API "
        "server's own)",
    )
    proxies: str = Field(
        default="",
        description="host:port of the management ports of the proxies, each address of which is asked for "
        "its evaluators (default: none)",
    )
