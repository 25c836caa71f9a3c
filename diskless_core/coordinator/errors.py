"""Errors of the coordinator.

CoordinatorError            knows its Kafka error code
├── NotCoordinatorError     this node does not lead the shard (any more); ask again, maybe elsewhere
│   └── NotControllerError  the same, of the cluster shard
├── OutcomeUnknownError     the command may or may not have happened; send the same one again
├── CoordinatorLoadingError the shard is still reading its log
├── NodeGoneError           nobody listens where the node did that was asked; ask again, maybe elsewhere
├── StoreBehindError        the leader's store lacks too much for more to be accepted; ask again later
├── RequestRefusedError     another node takes the request for invalid; the same one is refused again
├── EntryTooLargeError      the log will never take what the command writes; sending it again is of no use
├── CommandTakenBackError   what the command was judged upon has failed, so nothing happened; send it again
└── ClockSkewError          the asker's clock and the leader's differ by too much
"""

from __future__ import annotations

from diskless_core.protocol.errors import ErrorCode


class CoordinatorError(Exception):
    """A command did not get an answer. All of these are retriable for the client, except EntryTooLargeError."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinatorError(CoordinatorError):
    """This node does not lead the shard; nothing happened."""

    code = ErrorCode.NOT_COORDINATOR


class NotControllerError(NotCoordinatorError):
    """This node does not lead the cluster shard; nothing happened. A client finds who does by Metadata."""

    code = ErrorCode.NOT_CONTROLLER


class OutcomeUnknownError(CoordinatorError):
    """Leadership or the log was lost while the command was on its way: it may have happened, or may yet."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class CoordinatorLoadingError(CoordinatorError):
    """The shard is reading its log; nothing happened."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class NodeGoneError(CoordinatorError):
    """Nobody listens where the node did that was asked: its process has most likely ended; nothing happened."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class StoreBehindError(CoordinatorError):
    """The leader's memory has all that it may have without its store; nothing happened."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class RequestRefusedError(CoordinatorError):
    """Another node takes the request for invalid, perhaps since it is configured otherwise; nothing happened."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class EntryTooLargeError(CoordinatorError):
    """The log never takes an entry as large as this command's; nothing happened, and nothing will."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class CommandTakenBackError(CoordinatorError):
    """The command was judged upon another one that the log refused; nothing happened. Its node still leads."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class ClockSkewError(CoordinatorError):
    """A time is not certainly far enough in the past, by the leader's clock or a live broker's; nothing happened."""

    code = ErrorCode.INVALID_TIMESTAMP
