"""Settings of admission."""

from __future__ import annotations

from pydantic import Field

from controller.app.settings.injection_settings import InjectionSettings
from controller.app.settings.settings_values import Port


class AdmissionSettings(InjectionSettings):
    """One process of admission. A field is an option of `flagstaff admission` and FLAGSTAFF_<NAME>."""

    admission_host: str = Field(default="", description="address of --admission-port (default: --host)")
    admission_port: Port = Field(default=9443, description="port of the webhooks; 0 takes a free port")
    admission_cert: str = Field(
        default="",
        description="PEM certificate of --admission-port, read again when it changes; the controller "
        "keeps one in the Secret flagstaff-admission",
    )
    admission_key: str = Field(default="", description="private key of --admission-cert")
    admission_client_ca: str = Field(
        default="",
        description="CAs that must have issued the API server's certificate (default: none needed)",
    )
