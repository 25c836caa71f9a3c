"""Tallies of tasks add up, and come whole through Spark."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_spark.orphans.tally import SAMPLE_KEYS, Amount, Kind, Tally, unpacked

amounts = st.builds(Amount, st.integers(0, 2**40), st.integers(0, 2**50))
tallies = st.builds(
    Tally,
    st.dictionaries(st.sampled_from(Kind), amounts),
    st.dictionaries(st.integers(0, 30_000), amounts),
    st.lists(st.text(), max_size=SAMPLE_KEYS),
)


@settings(deadline=None)
@given(tallies)
def test_a_tally_survives_as_text(tally: Tally) -> None:
    assert unpacked(tally.packed()) == tally


@settings(deadline=None)
@given(st.lists(tallies, max_size=4))
def test_a_sum_has_everything_and_a_sample_of_bounded_size(parts: list[Tally]) -> None:
    total = Tally()
    for part in parts:
        total.add(part)
    assert total.listed.objects == sum(part.listed.objects for part in parts)
    assert total.candidates.size_bytes == sum(part.candidates.size_bytes for part in parts)
    assert total.known.objects == sum(part.known.objects for part in parts)
    assert total.sample == [key for part in parts for key in part.sample][:SAMPLE_KEYS]
