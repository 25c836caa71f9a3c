"""`diskless cluster unregister`: a broker that is gone for good is forgotten. (KIP-631, UnregisterBroker.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from diskless_core.cli import common
from diskless_core.cli.client.cluster import ClusterError
from diskless_core.cli.client.cluster_status import TIMEOUT_S, parse_addresses
from diskless_core.cli.client.options import DEFAULT_BOOTSTRAP_SERVERS, BootstrapOption, ends_on_errors
from diskless_core.cli.raw_request import Address, ask
from diskless_core.protocol.errors import ErrorCode, code_of
from diskless_core.protocol.messages import UnregisterBrokerRequest, UnregisterBrokerResponse

_VERSION = 0


@ends_on_errors()
def unregister(
    node_id: Annotated[int, typer.Argument(metavar="NODE_ID", min=0, help="The broker's node.id.")],
    as_json: common.JsonOption = False,
    bootstrap_server: BootstrapOption = None,
) -> None:
    """Forget a broker that is gone for good. It has to be fenced: stop it first.

    Any other broker can be asked. The broker is not kept out: if its process is started again, it registers anew.
    """
    forget(parse_addresses(bootstrap_server or DEFAULT_BOOTSTRAP_SERVERS), node_id)
    if as_json:
        common.echo_json({"unregistered": node_id})
        return
    typer.echo(f"broker {node_id} is unregistered")


def forget(addresses: Sequence[Address], node_id: int) -> None:
    """Have the first broker that answers unregister another one.

    Raises:
        ClusterError: none does, or it is refused.
    """
    answer, may_be_done = _answer(addresses, node_id)
    code = code_of(answer.error_code)
    if code is not ErrorCode.NONE and not (may_be_done and code is ErrorCode.BROKER_ID_NOT_REGISTERED):
        raise ClusterError(_why_not(node_id, code, answer.error_message))


def _answer(addresses: Sequence[Address], node_id: int) -> tuple[UnregisterBrokerResponse, bool]:
    """The first answer, and whether a broker that was asked before and gave none may have done it."""
    problems, may_be_done = [], False
    for address in addresses:
        try:
            return ask(address, UnregisterBrokerRequest(broker_id=node_id), _VERSION, TIMEOUT_S), may_be_done
        except (OSError, EOFError, ValueError) as error:
            may_be_done = may_be_done or not isinstance(error, ConnectionRefusedError)
            problems.append(f"{address}: {error}")
    raise ClusterError(f"no broker answers: {'; '.join(problems)}. Correct --bootstrap-server, or start one")


def _why_not(node_id: int, code: ErrorCode, message: str | None) -> str:
    match code:
        case ErrorCode.INVALID_REQUEST:
            return f"broker {node_id} is live: stop it, and try again when `diskless cluster status` shows it as fenced"
        case ErrorCode.BROKER_ID_NOT_REGISTERED:
            return f"no broker {node_id} is registered: `diskless cluster status` shows those that are"
        case _:
            return f"broker {node_id} is not unregistered: {code.name}{f': {message}' if message else ''}"
