"""The verdict of the cluster's demo: every broken promise is found, and nothing else is."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from diskless_core.cli.cluster_demo.ledger import Ledger, Stamp, Verdict, longest_gap_s

KEPT = Verdict(
    acknowledged=6,
    read=6,
    read_again=0,
    refused=0,
    lost=0,
    moved=0,
    doubled=0,
    reordered=0,
    unread=0,
    changed=0,
)
FIRST, SECOND = ([Stamp(producer, 0, number) for number in range(3)] for producer in (1, 2))
WRITTEN = [one for pair in zip(FIRST, SECOND, strict=True) for one in pair]


def log(*stamps: Stamp) -> dict[int, list[tuple[int, Stamp]]]:
    """One partition with these records from offset 0 on."""
    return {0: list(enumerate(stamps))}


@pytest.fixture
def ledger() -> Ledger:
    """Two producers wrote three records each, in turn, and a group has read them."""
    made = Ledger()
    for offset, stamp in enumerate(WRITTEN):
        made.acknowledge(stamp, offset, float(offset))
        made.deliver(offset, stamp, offset + 0.5)
    return made


def test_a_record_says_who_sent_it_and_which_one_it_is():
    assert Stamp.of(Stamp(7, 3, 41).value(b"...."), 3) == Stamp(7, 3, 41)
    with pytest.raises(ValueError):
        Stamp.of(b"somebody else's", 0)


def test_kept_promises_are_no_problem(ledger: Ledger):
    verdict = ledger.verdict(log(*WRITTEN))
    assert verdict == KEPT
    assert verdict.problems() == []


def test_a_record_that_is_lost_is_found_and_so_are_those_that_moved_up(ledger: Ledger):
    verdict = ledger.verdict(log(*WRITTEN[:2], *WRITTEN[3:]))
    assert (verdict.lost, verdict.moved) == (1, 3)
    assert "1 records were acknowledged and are lost" in verdict.problems()


def test_the_last_record_that_is_lost_is_found(ledger: Ledger):
    verdict = ledger.verdict(log(*WRITTEN[:-1]))
    assert verdict == replace(KEPT, lost=1, changed=1)
    assert len(verdict.problems()) == 2


def test_a_whole_partition_that_is_lost_is_found(ledger: Ledger):
    assert ledger.verdict({0: []}).lost == 6
    assert ledger.verdict({}).lost == 6


def test_a_record_that_is_there_twice_is_found(ledger: Ledger):
    verdict = ledger.verdict(log(*WRITTEN, WRITTEN[1]))
    assert (verdict.doubled, verdict.lost, verdict.reordered) == (1, 0, 0)
    assert "1 records are there twice" in verdict.problems()


def test_records_in_another_order_are_found_though_producers_may_mix(ledger: Ledger):
    mixed = ledger.verdict(log(*FIRST, *SECOND))
    assert (mixed.reordered, mixed.doubled, mixed.lost) == (0, 0, 0)
    turned = ledger.verdict(log(FIRST[0], SECOND[0], FIRST[2], SECOND[1], FIRST[1], SECOND[2]))
    assert turned.reordered == 1
    assert "1 records come after a later record of their producer" in turned.problems()


def test_a_record_at_another_offset_than_its_producer_was_told_is_found(ledger: Ledger):
    ledger.acknowledge(Stamp(1, 0, 3), 7, 9.0)
    verdict = ledger.verdict(log(*WRITTEN, Stamp(1, 0, 3)))
    assert verdict.moved == 1


def test_what_was_written_and_not_acknowledged_may_be_there_or_not(ledger: Ledger):
    ledger.deliver(6, Stamp(1, 0, 3), 9.0)
    assert ledger.verdict(log(*WRITTEN, Stamp(1, 0, 3))).problems() == []


def test_what_the_group_did_not_get_is_found_and_what_it_got_twice_is_told(ledger: Ledger):
    ledger.acknowledge(Stamp(2, 0, 3), 6, 9.0)
    assert not ledger.all_is_read()
    assert ledger.verdict(log(*WRITTEN, Stamp(2, 0, 3))).unread == 1
    for _ in range(2):
        ledger.deliver(6, Stamp(2, 0, 3), 9.5)
    assert ledger.all_is_read()
    verdict = ledger.verdict(log(*WRITTEN, Stamp(2, 0, 3)))
    assert (verdict.read, verdict.read_again, verdict.problems()) == (7, 1, [])


def test_a_record_that_changes_between_two_reads_is_found(ledger: Ledger):
    ledger.deliver(2, WRITTEN[3], 9.0)
    assert ledger.verdict(log(*WRITTEN)).changed == 1


def test_a_refused_record_and_a_demo_without_records_are_problems():
    ledger = Ledger()
    ledger.refuse("no")
    ledger.refuse("no")
    assert ledger.verdict({0: []}).problems() == ["2 records were refused", "no record was acknowledged"]
    assert ledger.complaints == ["a producer was told: no"]


def test_the_longest_gap_counts_what_began_before_and_what_has_not_ended():
    assert longest_gap_s([1, 2, 3, 4], 0, 4) == 1
    assert longest_gap_s([1, 2, 3, 9, 10], 2.5, 4) == 6
    assert longest_gap_s([1, 2], 1.5, 9) == 7
    assert longest_gap_s([], 3, 5) == 2


def test_the_longest_silence_is_that_of_one_producer_though_others_go_on():
    ledger = Ledger()
    for at in range(10):
        ledger.acknowledge(Stamp(1, 0, at), at, float(at))
        ledger.deliver(at, Stamp(1, 0, at), at + 0.25)
    for at in (0, 7, 8, 9):
        ledger.acknowledge(Stamp(2, 1, at), at, float(at))
    assert ledger.longest_silence_s(0, 9) == (7.0, 1.0)
    assert ledger.newest() == {(1, 0): 9, (2, 1): 9}


def test_clients_may_note_at_once():
    ledger = Ledger()

    def note(producer: int) -> None:
        for number in range(500):
            ledger.acknowledge(Stamp(producer, producer, number), number, float(number))
            ledger.deliver(number, Stamp(producer, producer, number), float(number))

    threads = [threading.Thread(target=note, args=(producer,)) for producer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (ledger.acknowledged, ledger.read) == (2000, 2000)
    assert ledger.all_is_read()
