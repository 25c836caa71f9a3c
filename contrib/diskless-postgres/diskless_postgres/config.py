"""Settings of the log in PostgreSQL: `coordinator_log.postgres.<setting>`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, model_validator

from diskless_core.plugin.config import PluginSettings


class PostgresLogSettings(PluginSettings):
    """How to reach the server, and how long to wait for it."""

    host: str = Field(
        min_length=1,
        description="Host of the server, or the folder of its Unix socket. Several, separated by commas, are tried in "
        "order until one takes writes.",
    )
    port: str = Field(default="5432", pattern=r"^\d+(,\d+)*$", description="Port, or one for each host.")
    dbname: str = Field(default="diskless", min_length=1, description="Database that the log is in.")
    schema_name: str = Field(
        default="diskless",
        pattern=r"^[a-z_][a-z0-9_]{0,40}$",
        description="Schema of the log's tables. Two clusters in one database need two.",
    )
    user: str = Field(default="diskless", min_length=1, description="Role that brokers log in as.")
    password: SecretStr | None = Field(default=None, description="Password of that role.")
    password_file: str = Field(
        default="", description="File with the password instead, such as a mounted secret. It is read at each login."
    )
    sslmode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] = Field(
        default="prefer", description="Whether to use TLS, and how to check the server's certificate, as libpq has it."
    )
    sslrootcert: str = Field(default="", description="PEM file of the authorities that the certificate comes from.")
    sslcert: str = Field(default="", description="PEM file of the client's certificate. Empty: it has none.")
    sslkey: str = Field(default="", description="PEM file of the key of the client's certificate.")
    connections_max: int = Field(
        default=4,
        ge=1,
        le=64,
        description="Connections of a broker for appends, and as many for reads. It has two more that it keeps open.",
    )
    append_timeout_ms: int = Field(
        default=20_000,
        ge=100,
        le=25_000,
        description="Time in milliseconds after which an append that nobody has answered is given up.",
    )
    initialization_timeout_ms: int = Field(
        default=30_000, ge=0, le=600_000, description="How long in milliseconds a start waits for the server."
    )
    poll_max_ms: int = Field(
        default=1000,
        ge=10,
        le=60_000,
        description="Longest time in milliseconds until a broker sees what others appended, if no notification comes.",
    )
    session_timeout_ms: int = Field(
        default=6000,
        ge=1000,
        le=600_000,
        description="Milliseconds for which a nominated broker may give no sign of life until another one replaces it.",
    )

    @model_validator(mode="after")
    def _one_password(self) -> PostgresLogSettings:
        if self.password is not None and self.password_file:
            raise ValueError("password and password.file exclude each other")
        return self

    def connection_parameters(self) -> dict[str, str]:
        """Parameters of libpq, for it and nothing else: there may be a password among them. Reads the password's file.

        Raises:
            OSError: that file cannot be read.
        """
        password = self.password.get_secret_value() if self.password else ""
        if self.password_file:
            password = Path(self.password_file).read_text(encoding="utf-8").rstrip("\r\n")
        given = {
            "host": self.host,
            "port": self.port,
            "dbname": self.dbname,
            "user": self.user,
            "password": password,
            "sslmode": self.sslmode,
            "sslrootcert": self.sslrootcert,
            "sslcert": self.sslcert,
            "sslkey": self.sslkey,
            "target_session_attrs": "read-write" if "," in self.host else "any",
        }
        return {name: value for name, value in given.items() if value}
