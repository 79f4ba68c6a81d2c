from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import DataIntegrityError
from workbench.metrics.tables import Finder, codes, named, whole

IDS = st.integers(0, 2**63 - 1) | st.integers(0, 20) | st.integers(0, 2**18).map(lambda number: number << 44)


@given(st.lists(IDS, max_size=60), st.lists(IDS, max_size=60))
def test_an_id_is_found_at_its_first_position(ids, others):
    find = Finder(np.array(ids, dtype=np.int64))
    wanted = [*ids, *others, -1]
    found = find(np.array(wanted, dtype=np.int64)).tolist()
    assert found == [ids.index(one) if one in ids else -1 for one in wanted]
    assert find.repeated().tolist() == [at for at, one in enumerate(ids) if ids.count(one) > 1]


def test_a_million_equal_ids_take_no_longer_than_others():
    find = Finder(np.full(10**6, 7))
    assert find(np.array([7, 8])).tolist() == [0, -1]
    assert len(find.repeated()) == 10**6


def test_names_and_numbers_are_inverse():
    frame = pl.DataFrame({"stage": ["b", "a", "b"]})
    numbers = codes(frame, "stage", ("a", "b"), "span")
    assert numbers.tolist() == [1, 0, 1]
    assert named(numbers, ("a", "b")).to_list() == ["b", "a", "b"]
    assert named(np.array([-1, 0]), ("a",)).to_list() == [None, "a"]
    assert named(np.array([-1]), ()).to_list() == [None]


def test_a_null_is_refused_or_replaced():
    frame = pl.DataFrame({"batch": [1, None]})
    assert whole(frame, "batch", "span", -1).tolist() == [1, -1]
    with pytest.raises(DataIntegrityError, match=r"span\.batch.*row 1"):
        whole(frame, "batch", "span")
    with pytest.raises(DataIntegrityError, match=r"span\.kind.*row 0"):
        codes(pl.DataFrame({"kind": [None]}, schema={"kind": pl.String}), "kind", ("queue",), "span")
