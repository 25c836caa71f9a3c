"""Topics that are created because a client asks for them, by this broker or at the controller."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from diskless_core.broker.authorization import Caller
from diskless_core.broker.forwarding import Forwarding
from diskless_core.cluster.operations import Refusal
from diskless_core.cluster.topics import TopicInfo, Topics
from diskless_core.coordinator.errors import CoordinatorError, CoordinatorLoadingError, OutcomeUnknownError
from diskless_core.protocol.errors import ErrorCode, code_of
from diskless_core.protocol.framing import FrameError, check_structure, encode_request_header
from diskless_core.protocol.messages import CreateTopicsRequest, CreateTopicsResponse

MAX_CREATIONS = 1_000
"""Topics that are being created at the same time without anybody who waits for them."""

LIMIT_S = 15.0
"""How long the controller has to create one."""

_VERSION = 7
_CLIENT_ID = "auto-creation"
_CORRELATION_ID = 0
_HEADER_BYTES = 5
_DEFAULT_REPLICATION = -1

_log = structlog.get_logger(__name__)


class AutoCreation:
    """Creates topics with the settings of all topics. However many clients ask for one at once, it is created once."""

    def __init__(self, topics: Topics, forwarding: Forwarding) -> None:
        self._topics = topics
        self._forwarding = forwarding
        self._creating: dict[str, asyncio.Task[TopicInfo | Refusal]] = {}

    async def ensure(self, name: str, partition_count: int, caller: Caller) -> TopicInfo | Refusal:
        """The topic, created now if there is none; for `caller`, if that is the first one who asks for it.

        Raises:
            CoordinatorError: no definite answer.
        """
        info = self._topics.by_name(name)
        if info is not None:
            return info
        created = await asyncio.shield(self._creation(name, partition_count, caller))
        return self._topics.by_name(name) or created

    def begin(self, name: str, partition_count: int, caller: Caller) -> None:
        """Create a topic that is not there, in the background. A failure is logged, and the next call tries again.

        While very many are being created it does nothing: nobody waits here, so nothing else would bound them.
        """
        if name not in self._creating and len(self._creating) < MAX_CREATIONS:
            self._creation(name, partition_count, caller).add_done_callback(partial(_log_failure, name))

    async def stop(self) -> None:
        """Give up what is being created."""
        creating = list(self._creating.values())
        for task in creating:
            task.cancel()
        await asyncio.gather(*creating, return_exceptions=True)

    def _creation(self, name: str, partition_count: int, caller: Caller) -> asyncio.Task[TopicInfo | Refusal]:
        task = self._creating.get(name)
        if task is None:
            task = self._creating[name] = asyncio.create_task(self._create(name, partition_count, caller))
            task.add_done_callback(lambda _: self._creating.pop(name))
        return task

    async def _create(self, name: str, partition_count: int, caller: Caller) -> TopicInfo | Refusal:
        if self._forwarding.is_needed:
            answer = await self._forwarding.send(_request(name, partition_count), caller, LIMIT_S)
            if answer is not None:
                return self._created(name, answer)
        return await self._topics.create(name, partition_count, {})

    def _created(self, name: str, answer: bytes) -> TopicInfo | Refusal:
        """What the controller says, which is not known here yet if this broker lags very much."""
        [result] = _response(answer).topics
        error = code_of(result.error_code)
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return Refusal(code=error, message=result.error_message or error.name)
        info = self._topics.by_name(name)
        if info is None:
            raise CoordinatorLoadingError(f"the topic {name} is created, and not known to this broker yet")
        return info


def _request(name: str, partition_count: int) -> bytes:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partition_count,
        replication_factor=_DEFAULT_REPLICATION,
        assignments=[],
        configs=[],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=int(LIMIT_S * 1000), validate_only=False)
    header = encode_request_header(request.API_KEY, _VERSION, _CORRELATION_ID, _CLIENT_ID)
    return header + bytes(request.encode(version=_VERSION))


def _response(answer: bytes) -> CreateTopicsResponse:
    try:
        end = check_structure(CreateTopicsResponse, _VERSION, memoryview(answer), _HEADER_BYTES)
        response = CreateTopicsResponse.decode(answer[_HEADER_BYTES:end], version=_VERSION)
    except (FrameError, UnicodeDecodeError) as error:
        raise OutcomeUnknownError(f"the controller sent a malformed answer: {error}") from error
    if len(response.topics) != 1:
        raise OutcomeUnknownError(f"the controller sent {len(response.topics)} answers about one topic")
    return response


def _log_failure(name: str, creation: asyncio.Task[TopicInfo | Refusal]) -> None:
    error = None if creation.cancelled() else creation.exception()
    if isinstance(error, CoordinatorError):
        _log.info("a topic is not created yet", topic=name, reason=str(error))
    elif error is not None:
        _log.error("a defect of the broker: a topic is not created", topic=name, exc_info=error)
