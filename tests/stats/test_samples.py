from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from workbench.errors import UsageError, WorkbenchError
from workbench.stats.samples import TooFewPairs, UnpairedRuns, as_count, as_level, as_sample, pair_runs

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("values", "domain", "found"),
    [
        ([1.0, NAN], "latency", "x[1]=nan"),
        ([1.0, -2.5], "latency", "x[1]=-2.5"),
        ([1.0, -INF], "latency", "x[1]=-inf"),
        ([1.0, INF], "positive", "x[1]=inf"),
        ([1.0, 0.0], "positive", "x[1]=0.0"),
        ([INF], "real", "x[0]=inf"),
        ([], "real", "x of size 0"),
        ([1, None], "latency", "x[1]=None"),
        (["1.5"], "latency", "x[0]='1.5'"),
        ([True, False], "latency", "x[0]=True"),
        ([1.0, 2j], "real", "x[0]"),
        ([[1.0, 2.0]], "latency", "x with shape (1, 2)"),
        (3.0, "latency", "x with shape ()"),
        ([[1.0], [1.0, 2.0]], "latency", "rows of different length"),
        (np.ma.masked_array([1.0, 2.0], [False, True]), "latency", "x[1] masked"),
    ],
)
def test_a_bad_sample_is_named_with_its_position_and_value(values: Any, domain: Any, found: str) -> None:
    with pytest.raises(UsageError, match=r"^x: expected ") as caught:
        as_sample(values, "x", domain=domain)
    assert found in caught.value.found


def test_a_missing_latency_says_how_to_count_a_failure() -> None:
    with pytest.raises(UsageError, match="pass inf for a request that failed"):
        as_sample([1.0, None], "x", domain="latency")  # type: ignore[list-item]


def test_good_samples_keep_their_values() -> None:
    assert as_sample(np.array([3, 1], dtype=np.int64), "x", domain="positive").tolist() == [3.0, 1.0]
    assert as_sample(np.ma.masked_array([3, 1], [False, False]), "x", domain="positive").tolist() == [3.0, 1.0]
    assert as_sample([0, INF], "x", domain="latency").tolist() == [0.0, INF]
    assert as_sample([-1.5], "x", domain="real").tolist() == [-1.5]


@pytest.mark.parametrize("value", [0, 1, -0.1, 1.5, NAN, "0.5", None, True])
def test_levels_are_strictly_inside(value: Any) -> None:
    with pytest.raises(UsageError, match=f"confidence={value!r}"):
        as_level(value, "confidence")


@pytest.mark.parametrize("value", [-1, 2.0, "3", None, True])
def test_counts_are_whole(value: Any) -> None:
    with pytest.raises(UsageError, match=f"pairs={value!r}"):
        as_count(value, "pairs")


def pair(first: Any, second: Any, needed: int = 2) -> Any:
    return pair_runs(first, second, ("left", "right"), domain="positive", needed=needed, why="So it is.")


def test_pairs_follow_the_seed_and_not_the_position() -> None:
    seeds, left, right = pair({"a": 1, "b": 2}, {"b": 20, "a": 10})
    assert (seeds, left.tolist(), right.tolist()) == (("a", "b"), [1.0, 2.0], [10.0, 20.0])


def test_unpaired_seeds_are_listed_up_to_five_a_side() -> None:
    with pytest.raises(UnpairedRuns, match=r"1, 2, 3, 4, 5 and 2 more only in left and 'z' only in right") as caught:
        pair(dict.fromkeys(range(8), 1.0), {0: 1.0, "z": 1.0})
    assert caught.value.only_first == (1, 2, 3, 4, 5, 6, 7)
    assert caught.value.only_second == ("z",)


def test_one_sided_gaps_name_one_side() -> None:
    with pytest.raises(UnpairedRuns) as caught:
        pair({1: 1.0}, {1: 1.0, 2: 1.0})
    assert caught.value.found == "seed 2 only in right"


def test_sequences_are_refused_because_position_is_no_pairing() -> None:
    with pytest.raises(UsageError, match="left of type list"):
        pair([1.0, 2.0], {1: 1.0})


def test_too_few_pairs_says_why() -> None:
    with pytest.raises(TooFewPairs, match=r"at least 2 paired seeds, found pairs=1\. So it is\.") as caught:
        pair({1: 1.0}, {1: 1.0})
    assert (caught.value.pairs, caught.value.needed) == (1, 2)


def test_a_bad_metric_names_its_seed() -> None:
    with pytest.raises(UsageError, match=r"right\['s7'\]=inf.*score every failure at the deadline"):
        pair({"s7": 1.0, "s8": 1.0}, {"s7": INF, "s8": 1.0})


def test_errors_print_as_data() -> None:
    with pytest.raises(WorkbenchError) as caught:
        pair({1: 1.0}, {2: 1.0})
    assert caught.value.exit_code == 2
    assert caught.value.as_dict()["error"] == "UnpairedRuns"
