"""Batching: every wait ends, no chunk is late because it waited for company, sizes against brute force and a bound."""

from __future__ import annotations

import doctest
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.control import admission, batching, fallback, window
from workbench.control.batching import (
    DEADLINE,
    DEADLINES,
    DRAIN,
    EMPTY,
    FILL,
    FIRST_ALONE,
    FIRST_CHUNK,
    FULL,
    HOLD,
    LIMIT,
    MARGIN_NS,
    TIMEOUT_NS,
    TIMER,
    Batching,
    bucket,
    captured,
    close,
    efficient,
    load,
    padded_permille,
    playback_slack,
    prefill_share,
    service,
    unfilled_permille,
)
from workbench.control.ranges import MAX_BATCH, MAX_SERVICE_NS, MAX_TIME_NS, UNBOUNDED
from workbench.errors import UsageError
from workbench.schema.enums import BATCH_CLOSE, CONTROL_MODE
from workbench.twin import Edit, twin

ROWS = load()
FAST = twin("workbench.control.batching")
MS = 1_000_000
BASE, EACH = 6 * MS, 2 * MS
PAGE = Path(__file__).resolve().parents[2] / "docs" / "batching.md"


def vector(name: str) -> list[int]:
    return ROWS[name].vector(BASE, EACH)


times = st.one_of(st.integers(0, 100 * MS), st.just(MAX_TIME_NS))
slacks = st.one_of(st.integers(-100 * MS, 200 * MS), st.sampled_from([UNBOUNDED, -(1 << 62)]))
asked = st.tuples(
    st.one_of(st.integers(0, 40), st.just(MAX_BATCH)),
    st.integers(0, 40),
    times,
    slacks,
    st.one_of(st.integers(0, 50 * MS), st.just(MAX_SERVICE_NS)),
    st.one_of(st.integers(0, 50 * MS), st.just(MAX_SERVICE_NS)),
    st.integers(0, 1),
)


@pytest.mark.parametrize("name", ROWS)
@given(st.lists(asked, min_size=20, max_size=40))
def test_close(name, questions):
    """Sizes stay in the limit, every hold ends, an urgent member never holds, both executions agree."""
    p = vector(name)
    for ready, first, *rest in questions:
        question = (ready, min(ready, first), *rest)
        oldest_ns, slack_ns, _, next_ns, complete = rest
        code, size, recheck_ns = close(p, 0, *question)
        assert FAST.close(np.array(p), 0, *question) == (code, size, recheck_ns)
        assert 0 <= size <= min(ready, p[LIMIT])
        assert (size == 0) == (code in (EMPTY, HOLD))
        assert (code == EMPTY) == (ready == 0)
        assert (recheck_ns > 0) == (code == HOLD)
        if code == HOLD:
            assert 0 < recheck_ns <= p[TIMEOUT_NS] - oldest_ns
            assert ready < p[FILL]
            if p[DEADLINES]:
                assert recheck_ns <= slack_ns - next_ns - p[MARGIN_NS]
            # Asked again then, with nobody new: the same members leave, for a reason that has to do with time.
            later = (*question[:2], oldest_ns + recheck_ns, slack_ns - recheck_ns, *rest[2:])
            assert close(p, 0, *later)[0] in (TIMER, DEADLINE)
        if code == FIRST_CHUNK:
            assert p[FIRST_ALONE] and size == 1 and question[1] > 0  # noqa: PT018
        if code == DRAIN:
            assert complete or p[FILL] == 1
        if code == TIMER:
            assert oldest_ns >= p[TIMEOUT_NS]


@pytest.mark.parametrize(
    ("name", "question", "word", "size"),
    [
        ("never-wait", (3, 1, 0, UNBOUNDED, 8, 14, 0), "drain", 3),
        ("never-wait", (9, 1, 0, UNBOUNDED, 8, 14, 0), "full", 8),
        ("continuous", (33, 0, 0, UNBOUNDED, 8, 14, 0), "full", 32),
        ("fixed-batch", (7, 0, 999 * MS, -5, 8, 14, 1), "hold", 0),
        ("fixed-batch", (7, 0, 1000 * MS, -5, 8, 14, 1), "timer", 7),
        ("fixed-batch", (8, 0, 0, UNBOUNDED, 8, 14, 0), "full", 8),
        ("timeout", (7, 0, 1, UNBOUNDED, 8, 14, 1), "drain", 7),
        ("control-limit", (3, 0, 1, UNBOUNDED, 8, 14, 0), "hold", 0),
        ("control-limit", (4, 0, 1, UNBOUNDED, 8, 14, 0), "full", 4),
        ("first-chunk", (1, 1, 0, UNBOUNDED, 8 * MS, 10 * MS, 0), "first_chunk", 1),
        ("first-chunk", (5, 1, 0, 100 * MS, 8 * MS, 16 * MS, 0), "first_chunk", 1),
        ("first-chunk", (5, 1, 0, 26 * MS, 8 * MS, 16 * MS, 0), "deadline", 5),
        ("first-chunk", (5, 5, 0, -1, 8 * MS, 16 * MS, 0), "first_chunk", 1),
        ("first-chunk", (5, 0, 0, 19 * MS, 8 * MS, 16 * MS, 0), "hold", 0),
        ("first-chunk", (5, 0, 0, 18 * MS, 8 * MS, 16 * MS, 0), "deadline", 5),
        ("first-chunk", (5, 1, 40 * MS, UNBOUNDED, 8 * MS, 16 * MS, 0), "timer", 5),
        ("first-chunk", (8, 0, 0, UNBOUNDED, 8 * MS, 16 * MS, 0), "full", 8),
    ],
)
def test_who_leaves_and_why(name, question, word, size):
    code, found, _ = close(vector(name), 0, *question)
    assert ((*BATCH_CLOSE, "hold", "empty")[code], found) == (word, size)


class Stage:
    """One device under a row: chunks arrive, wait for company, are served in batches; in virtual time."""

    def __init__(self, row, arrivals, rules=batching, modes=lambda _: True):
        """`arrivals`: (time, request, chunk, time it is needed or UNBOUNDED), ascending; `modes`: row or never-wait."""
        self.rules, self.arrivals, self.modes = rules, arrivals, modes
        self.p, self.plain = row.vector(BASE, EACH), ROWS["never-wait"].vector(BASE, EACH)
        self.launched: list[
            tuple[int, int, int, tuple[tuple[int, int, int, int], ...]]
        ] = []  # start, end, code, members

    def run(self):
        now, i, waiting = 0, 0, []
        while i < len(self.arrivals) or waiting:
            while i < len(self.arrivals) and self.arrivals[i][0] <= now:
                waiting.append(self.arrivals[i])
                i += 1
            coming = self.arrivals[i][0] if i < len(self.arrivals) else None
            if not waiting:
                now = coming
                continue
            ready = [m for m in waiting if all(m[1] != o[1] or m[2] <= o[2] for o in waiting)]  # next of each stream
            p = self.p if self.modes(len(self.launched)) else self.plain
            first = sum(chunk == 0 for _, _, chunk, _ in ready)
            leave = min(len(ready), p[LIMIT])
            code, size, recheck_ns = self.rules.close(
                p, 0, len(ready), first, now - min(ready)[0], min(need for *_, need in ready) - now,
                BASE + EACH, BASE + EACH * (leave + 1), int(coming is None),
            )  # fmt: skip
            if code == HOLD:
                assert recheck_ns > 0, "a wait that does not end"
                now = now + recheck_ns if coming is None else min(now + recheck_ns, coming)
                continue
            ready.sort(key=lambda m: (m[2] != 0, m) if code == FIRST_CHUNK else (m[3], m))
            taken = ready[:size]
            waiting = [m for m in waiting if m not in taken]
            end = now + BASE + EACH * size
            self.launched.append((now, end, code, tuple(taken)))
            now = end
        return self


def speech(seed: int, streams: int = 3, chunks: int = 12, spread_ms: int = 400, chunk_ms: int = 200):
    """Streams that produce a chunk in about 60 % of its playing time; each steady chunk is needed when it is played."""
    rng = np.random.default_rng(seed)
    arrivals = []
    for request in range(streams):
        start = at = int(rng.integers(0, spread_ms)) * MS + request
        for chunk in range(chunks):
            needed = UNBOUNDED if chunk == 0 else start + (60 + chunk * chunk_ms) * MS
            arrivals.append((at, request, chunk, needed))
            at += int(rng.integers(chunk_ms * 2 // 5, chunk_ms * 4 // 5)) * MS
    return sorted(arrivals)


def late(stage: Stage) -> list[tuple[int, int]]:
    """Chunks that ended after they were needed although an idle device could have served them in time on arrival."""
    return [
        member[1:3]
        for _, end, _, members in stage.launched
        for member in members
        if end > member[3] >= member[0] + 2 * (BASE + EACH * 8)
    ]


@given(st.integers(0, 1 << 32))
def test_no_chunk_is_late_because_it_waited_for_company(seed):
    """Light load, so that only waiting for company can make a chunk late; chunks that had time for two full batches."""
    row = Batching("t", "t", "s", 8, 5_000 * MS, True, True, False, fill=8)
    stage = Stage(row, speech(seed)).run()
    assert late(stage) == []
    assert any(code == DEADLINE for *_, code, _ in stage.launched)
    assert max(len(members) for *_, members in stage.launched) > 1  # it did wait
    for start, _, code, members in stage.launched:
        if members[0][2] == 0 and code == FIRST_CHUNK:
            assert start - members[0][0] <= 2 * (BASE + EACH * 8)


@pytest.mark.parametrize(
    "change",
    [
        ("p[at + DEADLINES] == 1 and spare_ns <=", "p[at + DEADLINES] == 2 and spare_ns <="),
        ("spare_ns = slack_ns - next_ns - p[at + MARGIN_NS]", "spare_ns = slack_ns - p[at + MARGIN_NS]"),
        ("recheck_ns = min(recheck_ns, spare_ns)", "recheck_ns = recheck_ns + 0"),
    ],
)
def test_a_rule_that_forgets_the_deadline_is_late(change):
    rules = twin("workbench.control.batching", compiled=False, edits=[Edit("workbench.control.batching", *change)])
    row = Batching("t", "t", "s", 8, 5_000 * MS, True, True, False, fill=8)

    def runs():
        for seed in range(20):
            assert late(Stage(row, speech(seed, chunks=5), rules=rules).run()) == []

    with pytest.raises(AssertionError):
        runs()


def test_the_baseline_is_late_where_the_dual_mode_is_not():
    """fixed-batch waits its whole timeout, which is what the dual mode is compared with."""
    assert any(late(Stage(ROWS["fixed-batch"], speech(seed)).run()) for seed in range(5))


@pytest.mark.parametrize("name", ROWS)
def test_every_wait_is_bounded(name):
    """A member leaves within its timeout and one batch of those before it, while the device keeps up."""
    for seed in range(4):
        arrivals = [(at, r, c, UNBOUNDED) for at, r, c, _ in speech(seed, streams=6)]
        stage = Stage(ROWS[name], arrivals).run()
        assert sum(len(members) for *_, members in stage.launched) == len(arrivals)
        for start, _, _, members in stage.launched:
            assert start - min(members)[0] <= ROWS[name].timeout_ns + 3 * (BASE + EACH * 8)


def test_first_chunks_without_end_do_not_keep_steady_ones_waiting():
    """First chunks arrive faster than they are served one by one; a steady chunk leaves all the same."""
    firsts = [(i * 5 * MS, 1000 + i, 0, UNBOUNDED) for i in range(400)]
    arrivals = sorted([*firsts, (10 * MS, 1, 1, UNBOUNDED)])
    stage = Stage(ROWS["first-chunk"], arrivals).run()
    left = next(start for start, _, _, members in stage.launched if any(m[1] == 1 for m in members))
    assert left <= (10 + 40 + 8) * MS


@given(st.integers(0, 1 << 32), st.sampled_from(list(ROWS)))
def test_switching_changes_no_content(seed, name):
    """Each chunk is served once, and chunks of a stream in order, whatever row or mode was in force at each launch."""
    arrivals = speech(seed)
    rng = np.random.default_rng(seed)
    mode = rng.integers(0, 2, size=len(arrivals) + 1)
    stage = Stage(ROWS[name], arrivals, modes=lambda launch: bool(mode[launch])).run()
    served = [member for *_, members in stage.launched for member in members]
    assert sorted(served) == arrivals
    for request in {member[1] for member in served}:
        chunks = [member[2] for member in served if member[1] == request]
        assert chunks == sorted(chunks)


def test_never_wait_meets_the_bound_of_a_batch_server():
    """Mean wait of serve-all with ``t = a * b + t0`` under Poisson arrivals: Inoue (2021), theorem 2."""
    a, t0 = 0.1438, 1.0477
    row = Batching("t", "t", "s", MAX_BATCH, 0, False, False, True, fill=1)
    p = row.vector()
    for rate in (1.0, 3.0, 5.0):
        rng = np.random.default_rng(5)
        arrivals = np.cumsum(rng.exponential(1 / rate, size=60_000))
        now, i, total = 0.0, 0, 0.0
        while i < len(arrivals):
            ready = int(np.searchsorted(arrivals, now, side="right")) - i
            code, size, _ = close(p, 0, min(ready, MAX_BATCH), 0, 0, UNBOUNDED, 0, 0, 0)
            if code == EMPTY:
                now = arrivals[i]
                continue
            now += a * size + t0
            total += now * size - float(arrivals[i : i + size].sum())
            i += size
        la, lt = rate * a, rate * t0
        phi0 = (a + t0) / (2 * (1 - la)) * (1 + 2 * lt + (1 - lt) / (1 + la))
        phi1 = 1.5 * t0 / (1 - la) + a / 2 * (la + 2) / (1 - la**2)
        bound = min(phi0, phi1)
        assert (0.90 if rate == 1 else 0.97) * bound <= total / len(arrivals) <= 1.01 * bound


small = st.integers(0, 40)
sizes = st.lists(st.integers(1, 48), max_size=6, unique=True).map(sorted)


@given(st.lists(st.tuples(small, small, st.integers(0, 900), st.integers(1, 48), sizes), min_size=20, max_size=40))
def test_efficient_is_the_smallest_that_meets_the_bound(cases):
    for base, each, over, limit, graphs in cases:
        vec, count = [*graphs, 0], len(graphs)
        wanted = limit
        for b in range(1, limit + 1):
            if Fraction(service(base, each, vec, 0, count, b), b) <= (1 + Fraction(over, 1000)) * each:
                wanted = b
                break
        assert efficient(base, each, over, limit, vec, 0, count) == wanted
        assert FAST.efficient(base, each, over, limit, np.array(vec), 0, count) == wanted


@given(
    st.sampled_from([0, 1, MAX_SERVICE_NS]),
    st.sampled_from([0, 1, MAX_SERVICE_NS]),
    st.sampled_from([0, 1, 100_000]),
    st.sampled_from([[MAX_BATCH], [1, 2, 1000], [5]]),
)
def test_efficient_extremes(base, each, over, graphs):
    vec = np.array(graphs)
    for count in (0, len(graphs)):
        found = efficient(base, each, over, MAX_BATCH, graphs, 0, count)
        assert FAST.efficient(base, each, over, MAX_BATCH, vec, 0, count) == found
        assert 1 <= found <= MAX_BATCH
        for members in (1, MAX_BATCH):
            assert FAST.service(base, each, vec, 0, count, members) == service(base, each, graphs, 0, count, members)


@given(sizes, st.integers(1, 60))
def test_captured_is_a_step_function(graphs, members):
    vec = [*graphs, 0]
    size = captured(vec, 0, len(graphs), members)
    assert size == min((s for s in graphs if s >= members), default=members)
    assert captured(vec, 0, len(graphs), size) == size >= members
    assert FAST.captured(np.array(vec), 0, len(graphs), members) == size
    i = bucket(vec, 0, len(graphs), members)
    assert FAST.bucket(np.array(vec), 0, len(graphs), members) == i
    assert all(s < members for s in graphs[:i])


@given(st.lists(st.integers(1, 512), min_size=1, max_size=64))
def test_padded_share(lengths):
    """By buckets the padding is never more than without, and none is left when all lengths are equal."""
    share = padded_permille(sum(lengths), len(lengths), max(lengths))
    assert FAST.padded_permille(sum(lengths), len(lengths), max(lengths)) == share
    assert share == pytest.approx(1000 * (1 - sum(lengths) / (len(lengths) * max(lengths))), abs=1)
    edges = list(ROWS["length-buckets"].bucket_units)
    groups: dict[int, list[int]] = {}
    for length in lengths:
        groups.setdefault(bucket(edges, 0, len(edges), length), []).append(length)
    assert sum(len(group) * max(group) for group in groups.values()) <= len(lengths) * max(lengths)
    assert padded_permille(7 * 5, 5, 7) == 0


@given(st.integers(1, 100), st.integers(0, 200))
def test_unfilled(wanted, members):
    assert unfilled_permille(members, wanted) == FAST.unfilled_permille(members, wanted)
    assert unfilled_permille(members, wanted) == pytest.approx(1000 * max(0, 1 - members / wanted), abs=1)


@given(st.integers(0, 32), st.lists(st.tuples(st.integers(0, 900), st.integers(0, 1)), max_size=12))
def test_a_step_keeps_its_token_budget(decodes, prefills):
    """Sarathi-Serve: tokens of a step stay in the budget, no decode is skipped, and some prefill always advances."""
    budget = ROWS["continuous"].token_budget
    used = decodes
    for wanted, atomic in prefills:
        share = prefill_share(budget, used, wanted, atomic)
        assert FAST.prefill_share(budget, used, wanted, atomic) == share
        assert share in (0, wanted) if atomic else 0 <= share <= wanted
        used += share
    assert decodes <= used <= budget
    if decodes < ROWS["continuous"].limit:
        assert prefill_share(budget, decodes, 900, 0) > 0


@given(
    st.one_of(st.just(-1), times),
    st.integers(0, 1 << 20),
    st.one_of(times.filter(lambda t: t <= MAX_SERVICE_NS)),
    times,
    times,
)
def test_playback_slack(start_ns, chunk, chunk_ns, now_ns, path_ns):
    """A chunk that uses up its slack arrives as the one before it ends; before playback begins none is late."""
    slack = playback_slack(start_ns, chunk, chunk_ns, now_ns, path_ns)
    assert FAST.playback_slack(start_ns, chunk, chunk_ns, now_ns, path_ns) == slack
    if start_ns < 0:
        assert slack == UNBOUNDED
    else:
        assert now_ns + slack + path_ns == start_ns + chunk * chunk_ns


def test_the_dual_mode_fills_to_the_efficient_size():
    """6 ms + 2 ms per member, a quarter more accepted: 12, so the limit of 8; the cheaper a launch, the smaller."""
    assert ROWS["first-chunk"].vector(6 * MS, 2 * MS)[FILL] == 8
    assert ROWS["first-chunk"].vector(2 * MS, 2 * MS)[FILL] == 4
    assert ROWS["first-chunk"].vector(1 * MS, 2 * MS, sizes=(1, 8))[FILL] == 7
    assert ROWS["first-chunk"].vector()[FILL] == 8


GOOD = """
[mine]
text = "t"
source = "s"
limit = 4
fill = 2
timeout_ns = 5
first_alone = false
deadline = false
drain = true
"""


def test_a_user_adds_a_row(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(GOOD)
    rows = load(path)
    assert list(rows) == [*ROWS, "mine"]
    assert close(rows["mine"].vector(), 0, 2, 0, 0, UNBOUNDED, 0, 0, 0) == (FULL, 2, 0)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("timeout_ns = 5", "timeout_ns = 0", "timeout_ns of at least 1"),
        ("timeout_ns = 5", "timeout_ns = -1", "timeout_ns: expected an integer from 0"),
        ("timeout_ns = 5", "", "key 'timeout_ns'"),
        ("fill = 2", "fill = 5", "at most limit = 4"),
        ("fill = 2", "", "either fill or over_permille"),
        ("fill = 2", "fill = 2\nover_permille = 5", "either fill or over_permille"),
        ("limit = 4", "limit = 4\ntoken_budget = 4", "token_budget above limit"),
        ("limit = 4", "limit = 4\nbucket_units = [4, 4]", "integers that ascend"),
        ("limit = 4", "limit = 4\nbucket_units = 4", "a list of integers"),
        ("drain = true", 'drain = "yes"', "true or false"),
        ("[mine]", "[timeout]", "ships with the workbench"),
    ],
)
def test_bad_rows_get_one_clear_error(tmp_path, old, new, says):
    path = tmp_path / "own.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(UsageError, match=says):
        load(path)


def test_the_page_is_current(tmp_path, monkeypatch):
    """Every row, key, reason, verdict and mode is on the page, and its examples give what it says."""
    text = PAGE.read_text("utf-8")
    blocks = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for name, block in zip(("own-protocols.toml", "own-batchings.toml"), blocks, strict=True):
        (tmp_path / name).write_text(block)
    monkeypatch.chdir(tmp_path)
    for kind, title in ((window, "A protocol of your own"), (batching, "A batch rule of your own")):
        section = text.split(f"### {title}\n")[1].split("\n## ")[0]
        assert set(kind._COLUMNS) <= set(re.findall(r"`(\w+)`", section)), title
    names = [*ROWS, *window.load(), *admission.SOJOURNS, *admission.REASONS, *admission.VERDICTS]
    for name in (*names, *fallback.REASONS, *BATCH_CLOSE, *CONTROL_MODE):
        assert f"`{name}`" in text, f"{name} is not described"
    result = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted >= 8
    assert result.failed == 0
