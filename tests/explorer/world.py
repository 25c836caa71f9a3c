"""All that two writers, a reader, a pruner and an object store can be in the midst of, as one hashable value.

A step is one request that reaches the store, or an event of the store alone. What a process decides by the answer is
decided by the real functions (`rules`). A process that crashes is one that takes no further step, so each of these is
covered without a step of its own. Entries have one record, so an offset is a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from uuid import UUID

from diskless_bucket_log.decisions import (
    FIRST_POSITION,
    Accepted,
    Appended,
    BrokenChainError,
    Confirming,
    Deleting,
    Examining,
    MovingStart,
    OutcomeUnknown,
    Overtaken,
    Position,
    Pruned,
    Putting,
    ReadingBack,
    ReadingStart,
    WriteAnswer,
    counts,
    position_after,
)
from diskless_bucket_log.objects import FIRST_START, EntryHeader, LogStart
from diskless_core.coordinator.entries import Acceptance, Claim, Entry
from diskless_core.plugin.coordinator_log import LogBatch
from tests.explorer.rules import Rules

NUMBERS = 4
CLAIM = "claim"
ENTRY = "entry"


class ViolationError(Exception):
    """Two histories, or an acknowledged entry that is lost."""


@dataclass(frozen=True, slots=True)
class Locating:
    """To do: list the numbers."""


@dataclass(frozen=True, slots=True)
class Fetching:
    """To do: read the last number that was listed."""

    number: int


@dataclass(frozen=True, slots=True)
class Checking:
    """To do: read the log start, for what was read of the last number."""

    found: EntryHeader


@dataclass(frozen=True, slots=True)
class Writer:
    """A leader to be: claims, then writes commands, each acknowledged once its own reader accepts it.

    Attributes:
        doing: what it does next; None when it is done, or has stepped down.
        to_write: kinds of entries that it has not begun to put.
        confirming: objects that are at their numbers, while the next one is put already.
    """

    name: str
    doing: object
    to_write: tuple[str, ...]
    confirming: tuple[EntryHeader, ...] = ()
    acceptance: Acceptance = Acceptance()  # noqa: RUF009 - frozen
    term: int = -1


@dataclass(frozen=True, slots=True)
class Read:
    """What the reader has read and not checked yet.

    Attributes:
        position: the number, which it came to by reading what is before it, or from a snapshot.
        found: the object that was there.
        is_owed: whether that number, or one above it, had been acknowledged by then.
    """

    position: Position
    found: EntryHeader | None
    is_owed: bool


@dataclass(frozen=True, slots=True)
class World:
    """The store, the processes, what may still go wrong, and what nobody sees: the one history that there should be.

    Attributes:
        late: creates that may arrive at any time; `late_moves` are such replaces of the log start, with its version.
        truth: the objects that were created at or above the log start, by number: the first of each.
        acknowledged: of how many numbers, from 0 on, the last acknowledged one is.
    """

    writers: tuple[Writer, ...]
    prunings: int
    faults: int
    reader: Read | None = None
    pruner: object = None
    objects: tuple[EntryHeader | None, ...] = (None,) * (NUMBERS + 1)
    start: LogStart = FIRST_START
    version: int = 0
    late: frozenset[EntryHeader] = frozenset()
    late_moves: frozenset[tuple[LogStart, int]] = frozenset()
    truth: tuple[EntryHeader, ...] = ()
    acknowledged: int = 0


def steps(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    """Every step that can be next, with what it leads to.

    Raises:
        ViolationError: one of them shows two histories or a loss.
    """
    for index, writer in enumerate(world.writers):
        if index and _is_like(writer, world.writers[index - 1]):
            continue  # with the names changed, it is what the writer before it can do
        for what, after, changed in _write(world, writer, rules):
            writers = (*after.writers[:index], changed, *after.writers[index + 1 :])
            yield f"writer {writer.name}: {what}", replace(after, writers=writers)
    yield from _read(world, rules)
    yield from _prune(world, rules)
    for header in world.late:
        yield f"the late create of {header.number} arrives", _create(_without_late(world, header), header)[0]
    for move in world.late_moves:
        arrived = replace(world, late_moves=world.late_moves - {move})
        yield f"the late log start {move[0].number} arrives", _move(arrived, *move)[0]


def _is_like(writer: Writer, other: Writer) -> bool:
    return writer.doing == other.doing == Locating() and replace(writer, name=other.name) == other


# --- the store -----------------------------------------------------------------------------------------------------


def _create(world: World, header: EntryHeader) -> tuple[World, WriteAnswer]:
    number = header.number
    if world.objects[number] is not None:
        return world, WriteAnswer.CONDITION_FAILED
    objects = (*world.objects[:number], header, *world.objects[number + 1 :])
    truth = world.truth
    if counts(number, world.start.number) and number >= len(truth):
        expected = truth[-1].digest if truth else FIRST_POSITION.predecessor
        if number != len(truth) or header.predecessor != expected:
            raise ViolationError(f"number {number} counts and does not continue the log")
        truth = (*truth, header)
    return replace(world, objects=objects, truth=truth), WriteAnswer.DONE


def _move(world: World, wanted: LogStart, version: int) -> tuple[World, WriteAnswer]:
    if world.version != version:
        return world, WriteAnswer.CONDITION_FAILED
    return replace(world, start=wanted, version=version + 1), WriteAnswer.DONE


def _without_late(world: World, header: EntryHeader) -> World:
    return replace(world, late=world.late - {header})


# --- writers -------------------------------------------------------------------------------------------------------


def _write(world: World, writer: Writer, rules: Rules) -> Iterator[tuple[str, World, Writer]]:
    if writer.confirming:
        yield "reads the log start for what it has put", *_confirm_earlier(world, writer, rules)
    match writer.doing:
        case Locating():
            listed = [number for number, found in enumerate(world.objects) if found and number >= world.start.number]
            doing = Fetching(listed[-1]) if listed else _put(writer, FIRST_POSITION)
            yield "lists", world, _begun(writer, doing)
        case Fetching(number):
            found = world.objects[number]
            yield f"reads {number}", world, replace(writer, doing=Checking(found) if found else Locating())
        case Checking(found):
            known = counts(found.number, world.start.number)
            doing = _put(writer, position_after(found)) if known else Locating()
            yield "reads the log start", world, _begun(writer, doing)
        case Putting(header) as state:
            created, answer = _create(world, header)
            yield f"creates {header.number}", created, _after_put(writer, rules.after_put(state, answer))
            unanswered = _after_put(writer, rules.after_put(state, WriteAnswer.NO_ANSWER))
            if world.faults:
                yield f"creates {header.number}, unanswered", replace(created, faults=world.faults - 1), unanswered
                delayed = replace(world, late=world.late | {header}, faults=world.faults - 1)
                yield f"creates {header.number}, to arrive late", delayed, unanswered
        case ReadingBack(header) as state:
            next_step = rules.after_read_back(state, world.objects[header.number])
            yield f"reads {header.number} back", world, _after_put(writer, next_step)
        case Confirming(header) as state:
            outcome = rules.after_confirming(state, world.start.number)
            yield "reads the log start", *_concluded(world, writer, outcome, rules)
        case Examining() as state:
            outcome = _checked(lambda: rules.after_examining(state, world.start.number))
            yield "reads the log start", *_concluded(world, writer, outcome, rules)


def _put(writer: Writer, position: Position) -> Putting | None:
    """An object at a position, of the next kind. Its nonce says what it is."""
    if not writer.to_write or position.number >= NUMBERS:
        return None
    nonce = f"{writer.name}:{writer.to_write[0]}:{position.number}:{writer.term}:{len(writer.to_write)}".encode()
    return Putting(
        EntryHeader(
            number=position.number,
            base_offset=position.offset,
            next_offset=position.offset + 1,
            nonce=nonce,
            predecessor=position.predecessor,
            digest=nonce,
        )
    )


def _begun(writer: Writer, doing: object) -> Writer:
    return replace(writer, doing=doing, to_write=writer.to_write[1:] if isinstance(doing, Putting) else writer.to_write)


def _after_put(writer: Writer, doing: object) -> Writer:
    """What follows from an object's being there. A claim has to be read back before anything else is written."""
    is_pipelined = writer.term < 0 and isinstance(doing, Confirming) and writer.to_write[:1] == (ENTRY,)
    if not is_pipelined or _kind(doing.header) == CLAIM:
        return replace(writer, doing=doing)
    following = _put(writer, position_after(doing.header))
    if following is None:
        return replace(writer, doing=doing)
    return _begun(replace(writer, confirming=(*writer.confirming, doing.header)), following)


def _confirm_earlier(world: World, writer: Writer, rules: Rules) -> tuple[World, Writer]:
    for header in writer.confirming:
        outcome = rules.after_confirming(Confirming(header), world.start.number)
        if isinstance(outcome, OutcomeUnknown):
            return world, replace(writer, doing=None, confirming=())
        world = _acknowledge(world, header)
    return world, replace(writer, confirming=())


def _concluded(world: World, writer: Writer, outcome: object, rules: Rules) -> tuple[World, Writer]:
    match outcome:
        case Overtaken(found, position):
            _require_true(world, found)
            moved = _taken(writer, found)
            again = _put(replace(moved, to_write=(_kind(writer.doing.header), *moved.to_write)), position)
            return world, replace(moved, doing=again)
        case Appended(header):
            return _appended(world, writer, header, rules)
    return world, replace(writer, doing=None, confirming=())


def _appended(world: World, writer: Writer, header: EntryHeader, rules: Rules) -> tuple[World, Writer]:
    """The writer's reader has read up to here: is it the leader, and does its entry count?"""
    what = payload(header)
    leads_nothing = writer.term < 0
    if isinstance(what, Claim):
        taken = replace(_taken(writer, header), term=header.base_offset)
        return world, _begun(taken, _put(taken, position_after(header)))
    if not leads_nothing and not rules.accepts(writer.acceptance, what):
        return world, replace(writer, doing=None)
    taken = _taken(writer, header)
    acknowledged = _acknowledge(world, header) if not writer.confirming or leads_nothing else world
    return acknowledged, _begun(taken, _put(taken, position_after(header)))


def _taken(writer: Writer, header: EntryHeader) -> Writer:
    return replace(writer, acceptance=_advanced(writer.acceptance, header))


# --- reader and pruner ---------------------------------------------------------------------------------------------


def _read(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    """A reader reads any number that it can have come to; it remembers nothing, for what it accepted is the truth."""
    reader = world.reader
    if reader is None:
        for number in range(min(len(world.truth) + 1, NUMBERS)):
            position = position_after(world.truth[number - 1]) if number else FIRST_POSITION
            read = Read(position, world.objects[number], world.acknowledged > number)
            yield f"reader: reads {number}", replace(world, reader=read)
        return
    outcome = _checked(lambda: rules.judge_read(reader.position, reader.found, world.start.number))
    checked = replace(world, reader=None)
    if isinstance(outcome, Accepted):
        _require_true(world, reader.found)
        yield "reader: accepts it", checked
    elif isinstance(outcome, Pruned):
        yield "reader: goes on at the log start", checked
    elif reader.is_owed:
        raise ViolationError(f"a reader takes {reader.position.number} for the end, after it was acknowledged")
    else:
        yield "reader: is at the end", checked


def _prune(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    match world.pruner:
        case None if world.prunings and world.truth:
            for number in range(1, rules.highest_start(len(world.truth) - 1) + 1):
                wanted = LogStart(number=number, offset=number, predecessor=world.truth[number - 1].digest)
                begun = replace(world, prunings=world.prunings - 1, pruner=ReadingStart(wanted))
                yield f"pruner: means to prune below {number}", begun
        case ReadingStart() as state:
            following = rules.after_reading_start(state, world.start, str(world.version))
            yield "pruner: reads the log start", replace(world, pruner=following)
        case MovingStart(wanted, version) as state:
            moved, answer = _move(world, wanted, int(version))
            unanswered = rules.after_moving_start(state, WriteAnswer.NO_ANSWER)
            yield "pruner: moves the log start", replace(moved, pruner=rules.after_moving_start(state, answer))
            if world.faults:
                lost = replace(moved, pruner=unanswered, faults=world.faults - 1)
                yield "pruner: moves the log start, unanswered", lost
                late_moves = world.late_moves | {(wanted, int(version))}
                delayed = replace(world, late_moves=late_moves, pruner=unanswered, faults=world.faults - 1)
                yield "pruner: moves the log start, to arrive late", delayed
        case Deleting(below):
            number = next((number for number in range(below) if world.objects[number] is not None), None)
            if number is None:
                yield "pruner: is done", replace(world, pruner=None)
            else:
                objects = (*world.objects[:number], None, *world.objects[number + 1 :])
                yield f"pruner: deletes {number}", replace(world, objects=objects)


# --- what has to hold ----------------------------------------------------------------------------------------------


def _kind(header: EntryHeader) -> str:
    return header.nonce.decode().split(":")[1]


def payload(header: EntryHeader) -> Claim | Entry:
    """What an object has in it."""
    name, kind, _, term, _ = header.nonce.decode().split(":")
    if kind == CLAIM:
        return Claim(node_id=ord(name), claim_id=UUID(int=ord(name)))
    return Entry(term=int(term), sequence=0, records=())


def _advanced(acceptance: Acceptance, header: EntryHeader) -> Acceptance:
    """Without the digest of all before: it decides nothing here, and would tell apart states that are alike."""
    batch = LogBatch(header.base_offset, header.next_offset, header.nonce)
    after = acceptance.after(payload(header), batch)
    return Acceptance(term=after.term, next_sequence=after.next_sequence)


def _checked(decide: object) -> object:
    try:
        return decide()  # type: ignore[operator]
    except BrokenChainError as error:
        raise ViolationError(str(error)) from error


def _require_true(world: World, header: EntryHeader | None) -> None:
    assert header is not None
    if header.number >= len(world.truth) or world.truth[header.number] != header:
        raise ViolationError(f"somebody accepts {header.nonce!r} at {header.number}: there are two histories")


def _acknowledge(world: World, header: EntryHeader) -> World:
    _require_true(world, header)
    what = payload(header)
    if isinstance(what, Entry) and what.term >= 0:
        acceptance = Acceptance()
        for earlier in world.truth[: header.number]:
            acceptance = _advanced(acceptance, earlier)
        if not acceptance.accepts(what):
            raise ViolationError(f"{header.nonce!r} is acknowledged, and no replica accepts it")
    return replace(world, acknowledged=max(world.acknowledged, header.number + 1))
