"""What all commands that are clients of a Kafka share: its address, the client's properties, how an error ends them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import javaproperties
import typer

from diskless_core.cli import common
from diskless_core.cli.client.cluster import Cluster, ClusterError

DEFAULT_BOOTSTRAP_SERVERS = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "DISKLESS_BOOTSTRAP_SERVERS"

_COMPLETION_TIMEOUT_S = 1.0

BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_VARIABLE,
        help=f"The Kafka, or several of its brokers by commas; {DEFAULT_BOOTSTRAP_SERVERS} unless said otherwise.",
    ),
]
CommandConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        "-F",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Properties file of the client, by librdkafka's names: TLS, SASL and all else.",
    ),
]
CommandPropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--command-property", "-X", metavar="KEY=VALUE", help="One property of the client; can be given many times."
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def client_properties(
    bootstrap: str | None, command_config: Path | None, command_property: Sequence[str] | None
) -> dict[str, str]:
    """The client's properties: single ones precede the address, which precedes the file."""
    properties: dict[str, str] = {"bootstrap.servers": DEFAULT_BOOTSTRAP_SERVERS}
    if command_config is not None:
        properties |= javaproperties.loads(command_config.read_text(encoding="utf-8"))
    if bootstrap:
        properties["bootstrap.servers"] = bootstrap
    return properties | pairs(command_property or (), "--command-property")


def connected(bootstrap: str | None, command_config: Path | None, command_property: Sequence[str] | None) -> Cluster:
    """The cluster that the options name; raises `ClusterError`."""
    return Cluster(client_properties(bootstrap, command_config, command_property))


def pairs(written: Sequence[str], option: str) -> dict[str, str]:
    """The keys and values of `KEY=VALUE` texts; a usage error for any other text."""
    for pair in written:
        if not pair.partition("=")[0].strip() or "=" not in pair:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint=option)
    return {key.strip(): value for key, _, value in (pair.partition("=") for pair in written)}


@contextmanager
def ends_on_errors() -> Iterator[None]:
    """Tell an error of the cluster in a line and end with exit code 1; end silently when nobody reads the output."""
    try:
        try:
            yield
            sys.stdout.flush()
        except ClusterError as error:
            common.fail(str(error))
    except BrokenPipeError:
        # what is still buffered has no reader, and the interpreter would try to write it again at its end
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Have SIGTERM, as `timeout` sends it, end a command as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of topics that begin with a text, for the shell's completion; none when no broker answers."""
    return [name for name in _ask_for_completion(ctx.params, Cluster.topic_names) if name.startswith(incomplete)]


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of groups that begin with a text, for the shell's completion; none when no broker answers."""
    return [name for name in _ask_for_completion(ctx.params, Cluster.group_names) if name.startswith(incomplete)]


def _ask_for_completion(params: Mapping[str, Any], names: Callable[[Cluster], list[str]]) -> list[str]:
    bootstrap = params.get("bootstrap_server") or os.environ.get(BOOTSTRAP_VARIABLE)
    with suppress(ClusterError, OSError, ValueError, typer.BadParameter):
        properties = client_properties(bootstrap, params.get("command_config"), params.get("command_property"))
        return names(Cluster(properties, timeout_s=_COMPLETION_TIMEOUT_S))
    return []
