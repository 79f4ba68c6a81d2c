"""Which questions a trace can answer: per family of views, whether the rows it needs are there, and what is missing.

A number that a trace cannot support is not shown as zero and not left for the reader to doubt: it is named here, with
the reason. Every question is judged per run from counts of rows, never from the values of the metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import duckdb

from workbench.schema.enums import WAIT_KINDS

State = Literal["yes", "partly", "no"]
Verdict = tuple[State, str]
Counts = dict[str, int]

NOT_MEASURED: Verdict = ("no", "not measured")

# Names of the counts, and queries for (run, count, ...) in that order; a run that a query does not return counts 0.
COUNTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("is_own", "has_probes", "has_calibration", "events_lost", "has_isolated", "isolated_is_here"),
        """
        SELECT run, (provenance IN ('measured', 'emulated', 'replayed'))::INT, (probes = 'on')::INT,
               (probe_ns_per_event IS NOT NULL)::INT, events_lost, (isolated_run IS NOT NULL)::INT,
               coalesce((isolated_run IN (SELECT run::VARCHAR FROM run))::INT, 0)
        FROM run
        """,
    ),
    (
        ("requests", "submitted"),
        "SELECT run, count(*), count(arrival_ns) FROM request GROUP BY run",
    ),
    (
        ("outcomes", "ok", "ended", "cancelled", "quality"),
        """
        SELECT run, count(*), count(*) FILTER (status = 'ok'), count(end_ns), count(cancel_ns), count(quality)
        FROM outcome
        GROUP BY run
        """,
    ),
    (
        ("services", *WAIT_KINDS, "named", "nameable"),
        """
        SELECT run,
               count(*) FILTER (kind IN ('service', 'preprocess')),
               count(*) FILTER (kind = 'queue'),
               count(*) FILTER (kind = 'batch_wait'),
               count(*) FILTER (kind = 'credit_stall'),
               count(*) FILTER (kind = 'join_wait'),
               count(*) FILTER (cause NOT IN ('arrival', 'timer', 'unknown') AND cause_span IS NOT NULL),
               count(*) FILTER (cause NOT IN ('arrival', 'timer'))
        FROM span
        GROUP BY run
        """,
    ),
    (("served",), "SELECT run, count(DISTINCT request) FROM span WHERE kind = 'service' GROUP BY run"),
    (
        ("launches", "limited", "timed"),
        """
        SELECT run, count(*), count("limit"),
               count(*) FILTER (device_start_ns IS NOT NULL AND device_end_ns IS NOT NULL)
        FROM batch
        GROUP BY run
        """,
    ),
    (("chunks", "sized", "arrived"), "SELECT run, count(*), count(bytes), count(received_ns) FROM chunk GROUP BY run"),
    (
        ("taken", "consumed"),
        """
        SELECT c.run, count(*), count(c.consumer_span)
        FROM chunk AS c
        JOIN edge AS e ON e.run = c.run AND e.edge = c.edge
        JOIN stage AS t ON t.run = e.run AND t.stage = e.target
        WHERE t.role <> 'client' AND c.taken_ns IS NOT NULL
        GROUP BY c.run
        """,
    ),
    (
        ("audio_edges", "joins", "windows"),
        """
        SELECT e.run, count(*) FILTER (t.role = 'client' AND e.modality = 'audio'),
               (SELECT count(*) FROM (
                    SELECT run, target FROM edge GROUP BY run, target HAVING count(*) > 1
                ) AS j JOIN stage AS s ON s.run = j.run AND s.stage = j.target
                WHERE j.run = e.run AND s.role <> 'client'),
               count(e.window_chunks) + count(e.window_bytes)
        FROM edge AS e
        LEFT JOIN stage AS t ON t.run = e.run AND t.stage = e.target
        GROUP BY e.run
        """,
    ),
    (("sounding",), "SELECT run, count(*) FROM output_chunk WHERE has_audio GROUP BY run"),
    (
        ("ok_first_outputs",),
        """
        SELECT t.run, count(*)
        FROM ttfo AS t
        JOIN outcome AS o ON o.run = t.run AND o.request = t.request
        WHERE o.status = 'ok'
        GROUP BY t.run
        """,
    ),
    (("completed",), "SELECT run, count(*) FROM jct GROUP BY run"),
    (("slowed",), "SELECT run, count(*) FROM slowdown GROUP BY run"),
    (("objectives",), "SELECT run, count(*) FROM slo GROUP BY run"),
    (("credits",), "SELECT run, count(*) FROM credit GROUP BY run"),
    (("objects",), "SELECT run, count(*) FROM object GROUP BY run"),
    (("decisions",), "SELECT run, count(*) FROM decision GROUP BY run"),
    (("readings",), "SELECT run, count(value) FROM gauge GROUP BY run"),
    (("host_rows",), "SELECT run, count(*) FROM host GROUP BY run"),
    (
        ("meters", "metered", "modeled"),
        "SELECT run, count(source), count(energy_mj), count(modeled_mj) FROM energy_use GROUP BY run",
    ),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether one run can answer one question.

    Attributes
    ----------
    run : str
        Label of the run.
    question : str
        Kebab-case name of the question.
    text : str
        The question in words.
    state : str
        "yes", "partly" or "no".
    reason : str
        What is missing, or what the answer rests on.
    views : tuple of str
        Views that hold the answer.
    """

    run: str
    question: str
    text: str
    state: State
    reason: str
    views: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the views that answer it, and how counts decide whether they can."""

    id: str
    text: str
    views: tuple[str, ...]
    judge: Callable[[Counts], Verdict]


def answers(con: duckdb.DuckDBPyConnection) -> tuple[Answer, ...]:
    """Judge every question for every run of a store, runs in their order."""
    counts: dict[str, Counts] = {
        str(run): dict.fromkeys((name for names, _ in COUNTS for name in names), 0)
        for (run,) in con.execute("SELECT run FROM run ORDER BY run").fetchall()
    }
    for names, query in COUNTS:
        for run, *values in con.execute(query).fetchall():
            # Rows of a run that has no row in table run cannot exist: the label is that row.
            counts[str(run)] |= dict(zip(names, map(int, values), strict=True))
    return tuple(
        Answer(run, question.id, question.text, *question.judge(count), question.views)
        for run, count in counts.items()
        for question in QUESTIONS
    )


def _share(known: int, total: int, what: str, have: str) -> Verdict:
    """Yes if all of a total have something, no if none has, else partly."""
    if total == 0:
        return "no", f"there are no {what}"
    if known >= total:
        return "yes", f"all {total} {what} {have}"
    return ("no" if known == 0 else "partly"), f"{known} of {total} {what} {have}"


def _first_output(n: Counts) -> Verdict:
    return _share(n["ok_first_outputs"], n["ok"], "requests that ended ok", "had a first output")


def _job(n: Counts) -> Verdict:
    return _share(n["completed"], n["ok"], "requests that ended ok", "have an end")


def _playback(n: Counts) -> Verdict:
    if n["audio_edges"] == 0:
        return "no", "no edge brings audio to a client"
    return _rows("sounding", "chunks with samples at the client")(n)


def _failures(n: Counts) -> Verdict:
    return _share(n["outcomes"], n["requests"], "scheduled requests", "have an outcome")


def _load(n: Counts) -> Verdict:
    return _share(n["ended"], n["requests"], "scheduled requests", "have an end")


def _waiting(n: Counts) -> Verdict:
    if not n["has_probes"]:
        return "no", "probes were off: only the client was recorded"
    if n["is_own"]:
        return "yes", "the run's own recorder was on: no row means no wait"
    there = [kind for kind in WAIT_KINDS if n[kind]]
    missing = [kind for kind in WAIT_KINDS if not n[kind]]
    if not there:
        return "no", "no wait intervals"
    return "partly", f"{', '.join(there)} recorded" + (f", not {', '.join(missing)}" if missing else "")


def _service(n: Counts) -> Verdict:
    if not n["has_probes"]:
        return "no", "probes were off: only the client was recorded"
    state, reason = _share(n["served"], n["submitted"], "submitted requests", "reached a service")
    return ("yes" if n["is_own"] and n["served"] else state), reason


def _path(n: Counts) -> Verdict:
    if n["services"] == 0:
        return "no", "no service spans"
    if n["consumed"] == 0:
        return "no", "no chunk names its consumer"
    return _share(n["named"], n["nameable"], "spans with a cause", "name the interval")


def _batching(n: Counts) -> Verdict:
    return _share(n["limited"], n["launches"], "launches", "state their limit")


def _device(n: Counts) -> Verdict:
    if n["launches"] and not n["timed"]:
        return "no", "no device clock"
    return _share(n["timed"], n["launches"], "launches", "have device times")


def _transfer(n: Counts) -> Verdict:
    return _client_only(n, _share(n["arrived"], n["chunks"], "chunks", "arrived"))


def _bytes(n: Counts) -> Verdict:
    return _client_only(n, _share(n["sized"], n["chunks"], "chunks", "state their size"))


def _client_only(n: Counts, verdict: Verdict) -> Verdict:
    """Without probes there are chunks, but only those that the client wrote."""
    return verdict if n["has_probes"] or verdict[0] == "no" else ("partly", "probes were off: client edges only")


def _joins(n: Counts) -> Verdict:
    if n["joins"] == 0:
        return "no", "the graph has no join"
    return _share(n["consumed"], n["taken"], "chunks that a stage took", "name their consumer")


def _credit(n: Counts) -> Verdict:
    return ("no", "no edge has a window") if n["windows"] == 0 else _rows("credits", "credit events")(n)


def _objectives(n: Counts) -> Verdict:
    if n["objectives"] == 0:
        return "no", "no objectives: goodput counts what ended ok within its own deadlines"
    return "yes", f"{n['objectives']} objectives over all {n['requests']} scheduled requests"


def _quality(n: Counts) -> Verdict:
    return _share(n["quality"], n["ok"], "requests that ended ok", "were measured") if n["quality"] else NOT_MEASURED


def _fairness(n: Counts) -> Verdict:
    if not n["has_isolated"]:
        return "no", "the run names no isolated run"
    if not n["isolated_is_here"]:
        return "no", "its isolated run is not in this store"
    return _share(n["slowed"], n["ok"], "requests that ended ok", "have an isolated time")


def _cancel(n: Counts) -> Verdict:
    if n["cancelled"] == 0:
        return "no", "nothing was cancelled"
    if not n["has_probes"]:
        return "no", "probes were off: work after a cancel left no trace"
    if n["objects"] == 0:
        return "partly", f"{n['cancelled']} cancels; no state objects, so that the bytes they held are not known"
    return "yes", f"{n['cancelled']} cancels"


def _energy(n: Counts) -> Verdict:
    if n["meters"] == 0:
        return "no", "no energy counter was recorded"
    if n["metered"] == 0 and n["modeled"]:
        return "no", "modeled only"
    return _share(n["metered"], n["meters"], "energy counters", "were usable")


def _probes(n: Counts) -> Verdict:
    if not n["has_calibration"]:
        return "no", "the recorder was not calibrated"
    if n["events_lost"]:
        return "partly", f"{n['events_lost']} rows were lost"
    return "yes", "calibrated; pairs with probes on and off are other runs"


def _rows(count: str, what: str) -> Callable[[Counts], Verdict]:
    return lambda n: ("yes", f"{n[count]} {what}") if n[count] else ("no", f"no {what}")


QUESTIONS: tuple[Question, ...] = (
    Question("first-output", "When does a user get the first output?", ("ttfo", "ttft", "ttfa"), _first_output),
    Question("job", "When is the whole job done?", ("jct", "jct_per_audio_s"), _job),
    Question("playback", "Does the audio play without gaps?", ("audio", "rtf", "jitter", "underrun"), _playback),
    Question("failures", "How did all requests end?", ("outcome_counts",), _failures),
    Question("load", "Was the system stable under its load?", ("load_stability", "submit_lag"), _load),
    Question(
        "waiting",
        "Where do requests wait?",
        ("stage_wait", "stage_summary", "queue_depth", "oldest_wait", "batch_wait", "credit_stall"),
        _waiting,
    ),
    Question(
        "service",
        "Where is the work, and how much capacity is left?",
        ("stage_service", "stage_summary", "service_rate", "replica_busy"),
        _service,
    ),
    Question("critical-path", "What is on the critical path?", ("interval",), _path),
    Question("batching", "How full are launches?", ("batch_fill", "launch"), _batching),
    Question("device", "How busy are the devices?", ("device_busy",), _device),
    Question("transfer", "What do hand-overs cost?", ("edge_transfer",), _transfer),
    Question("bytes", "How much is in flight?", ("in_flight_bytes", "in_flight_high_water"), _bytes),
    Question("join", "Which branch of a join comes last?", ("join_wait",), _joins),
    Question("credit", "What do the windows hold back?", ("credit_stall",), _credit),
    Question("objectives", "Are the objectives met?", ("slo_attainment", "goodput"), _objectives),
    Question("quality", "Is the output good?", ("request_metrics",), _quality),
    Question(
        "fairness",
        "Who is slowed down by whom?",
        ("slowdown", "weighted_tail_slowdown", "tenant_share", "jain_index"),
        _fairness,
    ),
    Question("cancel", "What does a cancelled request still cost?", ("cancel_cleanup", "after_cancel"), _cancel),
    Question("energy", "How much energy did it take?", ("energy_use",), _energy),
    Question("probes", "What did recording cost?", ("probe_cost",), _probes),
    Question("state", "How long do state objects live?", (), _rows("objects", "state object events")),
    Question("decisions", "What did the control rules decide?", (), _rows("decisions", "decisions")),
    Question("machine", "How loaded was the machine?", (), _rows("readings", "gauge readings")),
    Question("host", "What does the host cost per stage?", (), _rows("host_rows", "host rows")),
)
