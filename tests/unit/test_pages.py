"""Memory that is used again once nobody looks at it any more."""

from __future__ import annotations

import ctypes

import pytest

from diskless_core.pages import PAGE_BYTES, POOLED_FROM_BYTES, PagePool

SIZE = 1 << 20


def address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


@pytest.mark.parametrize("size", [1, POOLED_FROM_BYTES - 1, POOLED_FROM_BYTES, SIZE - 1, SIZE, SIZE + 1, 3 * SIZE + 5])
def test_memory_has_the_size_that_was_asked_for(size):
    assert len(PagePool(0).take(size)) == size


@pytest.mark.parametrize("size", [POOLED_FROM_BYTES, SIZE + 1, 5 * SIZE // 4 + 1])
def test_large_memory_begins_on_a_page(size):
    assert address(PagePool(0).take(size)) % PAGE_BYTES == 0


def test_memory_is_used_again_when_the_last_view_is_gone():
    pool = PagePool(4 * SIZE)
    first = pool.take(SIZE)
    first[:3] = b"old"
    part = first[1:3]
    del first
    assert bytes(pool.take(SIZE)[:3]) == bytes(3), "somebody still reads the old one"
    del part
    assert {bytes(view[:3]) for view in [pool.take(SIZE), pool.take(SIZE)]} == {b"old", bytes(3)}


def test_the_smallest_memory_that_fits_is_used_unless_it_is_more_than_twice_too_large():
    pool = PagePool(8 * SIZE)
    large, medium = pool.take(4 * SIZE), pool.take(2 * SIZE)
    large[:3], medium[:3] = b"444", b"222"
    del large, medium
    first, second = pool.take(SIZE), pool.take(SIZE)
    assert (bytes(first[:3]), bytes(second[:3])) == (b"222", bytes(3))
    assert bytes(pool.take(4 * SIZE - 1)[:3]) == b"444"


def test_what_lay_longest_goes_when_too_much_lies_idle():
    pool = PagePool(2 * SIZE)
    views = [pool.take(SIZE) for _ in range(3)]
    for number, view in enumerate(views):
        view[0] = number + 1
    del view
    for number in range(3):
        views[number] = b""
    held = [pool.take(SIZE) for _ in range(3)]
    assert sorted(view[0] for view in held) == [0, 2, 3]


def test_pages_that_are_given_back_serve_whoever_is_next():
    pool = PagePool(4 * SIZE)
    pages = pool.take_pages(SIZE)
    pages[:3] = b"old"
    assert bytes(pool.take_pages(SIZE)[:3]) == bytes(3)
    pool.give_back(pages)
    assert bytes(pool.take(SIZE)[:3]) == b"old"


def test_what_is_too_large_to_lie_idle_takes_the_place_of_nothing():
    pool = PagePool(4 * SIZE)
    small, large = pool.take_pages(SIZE), pool.take_pages(5 * SIZE)
    small[:3] = b"old"
    pool.give_back(small)
    pool.give_back(large)
    assert bytes(pool.take_pages(SIZE)[:3]) == b"old"
