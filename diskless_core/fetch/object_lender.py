"""Answers DisklessReadObject: gives other brokers of the rack what this one's cache has, or reads it for them.

It never asks another broker itself. What it cannot give at once, for want of room or of the object, it refuses: the
broker that asks can read the object store as well. It knows no connection. (Extension to KIP-1164.)
"""

from __future__ import annotations

from diskless_core.coordinator.peers import PeerRequest
from diskless_core.fetch.object_reader import ObjectReader
from diskless_core.fetch.planner import MAX_RANGE_BYTES, ObjectRange
from diskless_core.metrics import Metrics
from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStoreError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.framing import FrameError, decode_request, encode_body
from diskless_core.protocol.messages import DisklessReadObjectRequest
from diskless_core.protocol.read_object import ReadObjectAnswer
from diskless_core.wal.format import is_object_key


class ObjectLender:
    """See the module.

    Args:
        max_bytes: of ranges that are being read from the object store for others at once, a single one excepted. 0
            lends nothing.
    """

    def __init__(self, reader: ObjectReader, *, object_prefix: str, max_bytes: int, metrics: Metrics) -> None:
        self._reader = reader
        self._prefix = object_prefix
        self._max_bytes = max_bytes
        self._metrics = metrics
        self._reading_bytes = 0

    async def answer(self, request: PeerRequest) -> bytes:
        """The body of a response to the body of a request, as a `PeerTransport` carries them.

        Raises:
            FrameError: the request is malformed.
        """
        view = memoryview(request.body)
        message = decode_request(DisklessReadObjectRequest, request.api_version, view, 0)
        if not isinstance(message, DisklessReadObjectRequest):
            raise FrameError("this is no DisklessReadObject")
        return b"".join(encode_body(await self.read_object(message), request.api_version))

    async def read_object(self, request: DisklessReadObjectRequest, *, has_room: bool = True) -> ReadObjectAnswer:
        """The bytes that are asked for, or why there are none.

        Args:
            has_room: whether the connection has few enough answers under way.
        """
        wanted = ObjectRange(request.object_key, request.start, request.end)
        is_range = 0 <= wanted.start < wanted.end and wanted.size_bytes <= MAX_RANGE_BYTES
        if not is_range or not is_object_key(self._prefix, wanted.object_key):
            return self.refused(ErrorCode.INVALID_REQUEST, "this is no range of a WAL object")
        if not self._max_bytes:
            return self.refused(ErrorCode.BROKER_NOT_AVAILABLE, "this broker shares no cache")
        if not has_room:
            return self.refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many answers are under way")
        data = self._reader.cached(wanted)
        if data is not None:
            return self._given(wanted, data, "memory")
        if self._reading_bytes and self._reading_bytes + wanted.size_bytes > self._max_bytes:
            return self.refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too much is being read already")
        self._reading_bytes += wanted.size_bytes
        try:
            return self._given(wanted, await self._reader.stored(wanted), "store")
        except ObjectNotFoundError as error:
            return self.refused(ErrorCode.RESOURCE_NOT_FOUND, str(error))
        except WalObjectStoreError as error:
            return self.refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        finally:
            self._reading_bytes -= wanted.size_bytes

    def refused(self, error: ErrorCode, message: str) -> ReadObjectAnswer:
        """No bytes."""
        self._metrics.peer_requests.labels("refused").inc()
        return ReadObjectAnswer(error_code=int(error), error_message=message)

    def _given(self, wanted: ObjectRange, data: memoryview, source: str) -> ReadObjectAnswer:
        self._metrics.peer_requests.labels(source).inc()
        self._metrics.peer_bytes_sent.inc(len(data))
        # The cache's own bytes may be prepared for readers here before they are all sent.
        return ReadObjectAnswer(object_key=wanted.object_key, start=wanted.start, data=bytes(data))
