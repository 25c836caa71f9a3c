"""Hook noun `offset_assignment`: which offsets the batches of a commit get."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from diskless_core.plugin.descriptor import Descriptor
from diskless_core.plugin.hookspecs import hookspec


class OffsetAssignment(ABC):
    """A pure function: same input, same output, on every node and at every replay. No I/O, no state."""

    @abstractmethod
    def assign(self, next_offset: int, record_counts: Sequence[int]) -> Sequence[int]:
        """Base offsets for the batches of one partition in one commit, in their order of arrival.

        Args:
            next_offset: the partition's first free offset.
            record_counts: records in each batch, each at least 1.

        Returns:
            As many offsets; a batch takes base offset to base offset + count - 1. The first is at least
            `next_offset`, and no batch begins before the end of the one before it. The core checks it.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAssignmentPlugin(Descriptor[OffsetAssignment]):
    """Descriptor that `diskless_offset_assignments` yields."""

    noun = "offset_assignment"


@hookspec
def diskless_offset_assignments() -> list[OffsetAssignmentPlugin]:
    """Ways to give offsets to the batches of a commit, chosen with `offset_assignment=<name>`.

    Example::

        @hookimpl
        def diskless_offset_assignments() -> list[OffsetAssignmentPlugin]:
            return [
                OffsetAssignmentPlugin(
                    name="aligned",
                    factory=AlignedAssignment,
                    settings=AlignedSettings,
                    api_version="1.0",
                    help="Starts every commit at a multiple of a configured number.",
                )
            ]
    """
    raise NotImplementedError
