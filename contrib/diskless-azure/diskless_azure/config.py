"""Settings of the `azure` backends. No message repeats a value: keys and tokens are pasted into the wrong places."""

from __future__ import annotations

import re
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from diskless_core.plugin.config import PluginSettings

_CONTAINER = re.compile(r"[a-z0-9](?:-?[a-z0-9]){2,62}")


class AzureConnection(PluginSettings):
    """How to reach a container; what lies there is a subclass's business."""

    account_url: str = Field(
        default="",
        description="The storage account's blob endpoint, such as https://NAME.blob.core.windows.net. "
        "Unset: connection.string has it.",
    )
    connection_string: SecretStr | None = Field(
        default=None, description="Connection string of the storage account, instead of account.url and credentials."
    )
    container: str = Field(description="Container, which has to exist.")
    prefix: str = Field(default="", description="Folder in the container below which all keys lie. Empty: all of it.")
    account_key: SecretStr | None = Field(default=None, description="Access key of the storage account.")
    sas_token: SecretStr | None = Field(
        default=None,
        description="Shared access signature that may read, add, create, write, delete and list (racwdl). With neither "
        "this nor account.key: the workload's or the machine's managed identity, and what else DefaultAzureCredential "
        "finds.",
    )
    request_timeout_ms: int = Field(
        default=30_000, gt=0, description="After how many milliseconds a request is given up."
    )
    connect_timeout_ms: int = Field(
        default=10_000, gt=0, description="After how many milliseconds an attempt to connect is given up."
    )
    max_connections: int = Field(default=64, gt=0, description="Connections that may be open at once.")

    @field_validator("account_url")
    @classmethod
    def _only_an_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if value and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError("must be a URL such as https://NAME.blob.core.windows.net")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError("must not hold credentials: put a SAS token into sas.token")
        return value.rstrip("/")

    @field_validator("container")
    @classmethod
    def _container_name(cls, value: str) -> str:
        if not _CONTAINER.fullmatch(value):
            raise ValueError("must be a container's name: 3 to 63 lower-case letters, digits and single hyphens")
        return value

    @field_validator("prefix")
    @classmethod
    def _folder(cls, value: str) -> str:
        value = value.strip("/")
        if not value.isascii() or not all(part not in ("", ".", "..") for part in value.split("/") if value):
            raise ValueError("must be an ASCII path such as wal or team/wal")
        return value

    @field_validator("sas_token")
    @classmethod
    def _signed(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        token = value.get_secret_value().lstrip("?")
        if not parse_qs(token).get("sig"):
            raise ValueError("must be a shared access signature, as in sv=...&sig=..., without the URL before it")
        return SecretStr(token)

    @field_validator("connection_string")
    @classmethod
    def _connectable(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _has_account(connection_parts(value)):
            raise ValueError("must be a connection string with AccountName or BlobEndpoint, as the portal shows it")
        return value

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if bool(self.account_url) == (self.connection_string is not None):
            raise ValueError("set account.url or connection.string, and not both")
        if self.account_key is not None and self.sas_token is not None:
            raise ValueError("set account.key or sas.token, and not both")
        if self.connection_string is not None and (self.account_key is not None or self.sas_token is not None):
            raise ValueError("connection.string brings its credentials: leave account.key and sas.token unset")
        return self

    def secrets(self) -> frozenset[str]:
        """What must stand in no message: keys and tokens, and the parts of them that are secret by themselves."""
        found: set[str] = set()
        for secret in (self.account_key, self.sas_token):
            if secret is not None:
                found.add(secret.get_secret_value())
        if self.connection_string is not None:
            found.add(self.connection_string.get_secret_value())
            parts = connection_parts(self.connection_string)
            found.update(parts[name] for name in ("ACCOUNTKEY", "SHAREDACCESSSIGNATURE") if parts.get(name))
        for text in tuple(found):
            for field in text.split("&"):
                name, _, signature = field.rpartition("sig=")
                if signature and not name.strip("?"):
                    found |= {signature, unquote(signature)}
        return frozenset(found)


class AzureSettings(AzureConnection):
    """Properties `wal_object_store.azure.*`."""


class AzureRemoteStorageSettings(AzureConnection):
    """Properties `remote_storage.azure.*`."""


def connection_parts(text: SecretStr) -> dict[str, str]:
    """The parts of a connection string by their names in upper case. Pure; nothing is checked."""
    parts = (part.partition("=") for part in text.get_secret_value().split(";"))
    return {name.strip().upper(): value for name, _, value in parts if name.strip()}


def _has_account(parts: dict[str, str]) -> bool:
    return bool(parts.get("ACCOUNTNAME") or parts.get("BLOBENDPOINT") or parts.get("USEDEVELOPMENTSTORAGE"))
