"""What becomes of answers on their way between brokers, at times: they say something else, or less.

No network does that to a checksummed connection. A leader with a defect does, and so does a broker whose cache is
damaged, and nobody must believe them.
"""

from __future__ import annotations

import random
from dataclasses import replace

from diskless_core.coordinator import entries
from diskless_core.coordinator.entries import Entry
from diskless_core.protocol import read_object
from diskless_core.protocol.follow_shard import FollowShardAnswer, pack, pack_entry
from diskless_core.protocol.messages import DisklessFollowShardResponse
from tests.simulation.history import History


class Garbler:
    """`rate` (0 to 1) is of answers that have entries, or bytes of an object."""

    def __init__(self, source: random.Random, history: History) -> None:
        self.rate = 0.0
        self._random = source
        self._history = history

    def lent(self, body: bytes) -> bytes:
        """The body of an answer of DisklessReadObject, as it arrives."""
        if self._random.random() >= self.rate:
            return body
        answer = read_object.unpack(body)
        if not answer.data:
            return body
        data = bytearray(answer.data)
        place = self._random.randrange(len(data))
        if self._random.random() < 0.8:
            data[place] ^= 1 << self._random.randrange(8)
        else:
            del data[place:]
        self._history.note("network", f"byte {answer.start + place} of {answer.object_key} is another, or the last")
        return b"".join(read_object.pack(replace(answer, data=data)))

    def passed_on(self, body: bytes) -> bytes:
        """The body of an answer of DisklessFollowShard, as it arrives."""
        if self._random.random() >= self.rate:
            return body
        answer = DisklessFollowShardResponse.decode(body, version=0)
        if not answer.entries:
            return body
        place = self._random.randrange(len(answer.entries))
        sent = [(one.offset, one.next_offset, one.digest, one.data) for one in answer.entries]
        if self._random.random() < 0.5:
            self._history.note("network", f"the entry at {sent[place][0]} says nothing any more")
            sent[place] = (*sent[place][:3], _emptied(sent[place][3]))
        else:
            self._history.note("network", f"the entry at {sent[place][0]} is missing")
            del sent[place]
        packed = [pack_entry(*one) for one in sent]
        return b"".join(pack(FollowShardAnswer(next_offset=answer.next_offset, digest=answer.digest, entries=packed)))


def _emptied(data: bytes) -> bytes:
    entry = entries.decode(data)
    if not isinstance(entry, Entry):
        return data
    return entries.encode_entry(entry.term, entry.sequence, [entries.NO_OP], 0)
