"""The trace contract: which tables a run has, which columns they carry, in which unit, and what NULL means.

A run at rest is a folder of Parquet files, one per table, beside ``manifest.json``. Recorder, importers, testbed and
replay engine write these tables; every metric is a SQL view over them. Times are int64 nanoseconds on the run's
reference clock (CLOCK_MONOTONIC of the orchestrating host unless ``run.clock`` says otherwise), sizes are bytes, NULL
means *not known*.

Three facts carry the whole contract:

* A **span** is an interval of one (request, stage, replica, chunk, epoch). Its ``cause`` says what unblocked it and
  ``cause_span`` which interval that was. Waits (queue, batch_wait, credit_stall, join_wait) are spans of their own: a
  wait starts when the task's data and state were ready and ends when the cause named in the row ended it.
* A **chunk** is a hand-off on an edge. It has an id from the same number space as spans, so that it can be a cause; the
  view ``interval`` shows it as a ``transfer`` (or ``deliver``, to a client) from ``sent_ns`` to ``received_ns``.
* An **outcome** exists exactly once per request, whatever happened, so that every denominator is whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.schema.enums import ENUMS

SCHEMA_VERSION = 1

# Identifier written in `chunk` (span table) for an interval that concerns the whole request at that stage.
WHOLE_REQUEST = -1


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `type` is int64, int32, int16, float64, bool, text, json, or the name of an enum in ENUMS."""

    name: str
    type: str
    doc: str
    null: bool = False

    @property
    def is_enum(self) -> bool:
        """Whether the values come from a closed vocabulary."""
        return self.type in ENUMS


@dataclass(frozen=True, slots=True)
class Table:
    """One table: what a row stands for, its columns, and the columns that identify a row (empty if none do)."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in declaration order: the order of a recorded row."""
        return tuple(column.name for column in self.columns)


def _table(name: str, doc: str, key: str, *columns: Column) -> Table:
    return Table(name, doc, columns, tuple(key.split()))


def _c(name: str, type_: str, doc: str) -> Column:
    """A column; a type that ends in "?" may be NULL."""
    return Column(name, type_.rstrip("?"), doc, null=type_.endswith("?"))


RUN = _table(
    "run",
    "one row: the recording, import or replay that this folder holds",
    "",
    _c("label", "text", "short name, the folder's name"),
    _c("provenance", "provenance", "how the intervals came to be"),
    _c("source", "text", "what produced it, e.g. testbed:t1"),
    _c("parent_run", "text?", "run that this one replays or repeats"),
    _c("isolated_run", "text?", "run of the same contents one request at a time, for slowdown"),
    _c("control_plan", "text", "control mode and rules in force, e.g. static"),
    _c("probes", "probes", "on: stage spans were recorded; off: client rows only"),
    _c("schema_version", "int32", "version of these tables"),
    _c("clock", "text", "reference clock of all *_ns columns"),
    _c("started_wall_ns", "int64?", "Unix time of the run's first clock reading"),
    _c("first_ns", "int64", "start of the measured window: first scheduled arrival"),
    _c("last_ns", "int64", "end of the measured window: last outcome"),
    _c("commit", "text?", "commit of the code that ran, with +dirty if files differed"),
    _c("models", "json", "model name -> revision"),
    _c("hardware", "json", "CPU, memory, accelerator"),
    _c("versions", "json", "Python and package versions"),
    _c("config", "json", "everything needed to run it again"),
    _c("seeds", "json", "arrival, length, content and sampling seeds"),
    _c("load_kind", "text?", "open-loop or closed-loop"),
    _c("rate_per_s", "float64?", "offered request rate"),
    _c("events", "int64", "rows taken by the recorder"),
    _c("events_lost", "int64", "rows the recorder had to drop; counted, never silent"),
    _c("probe_ns_per_event", "float64?", "calibrated recorder cost on this machine, mean of start and end of the run"),
)

PROC = _table(
    "proc",
    "process that wrote rows",
    "proc",
    _c("proc", "int16", "number, unique in the run"),
    _c("name", "text", "what it is, e.g. server, client"),
    _c("host", "text", "host name"),
    _c("pid", "int32?", "process id"),
    _c("boot_id", "text?", "boot of the host: equal ids share one CLOCK_MONOTONIC"),
)

CLOCK_SYNC = _table(
    "clock_sync",
    "reading of the wall clock between two readings of the local clock",
    "",
    _c("proc", "int16", "process"),
    _c("local_ns", "int64", "local clock, middle of the tightest bracket"),
    _c("wall_ns", "int64?", "Unix time read inside the bracket"),
    _c("ref_ns", "int64", "reference clock at that moment; equals local_ns when they are one clock"),
    _c("err_ns", "int64", "half width of the bracket"),
)

STAGE = _table(
    "stage",
    "stage of the run's graph; the client is a stage with role client",
    "stage",
    _c("stage", "text", "name"),
    _c("role", "stage_role", "what kind of work it does"),
    _c("replicas", "int16", "number of replicas"),
    _c("device", "text", "device it ran on, e.g. cpu, cuda:0; emulated devices say so"),
    _c("batch_limit", "int16?", "largest number of requests per launch"),
    _c("batch_timeout_ns", "int64?", "longest deliberate wait for more members"),
    _c("weights", "text", "pretrained:NAME, trained:NAME, random:SEED, emulated:TABLE or none"),
)

EDGE = _table(
    "edge",
    "edge of the run's graph",
    "edge",
    _c("edge", "text", "name: source>target"),
    _c("source", "text", "producing stage"),
    _c("target", "text", "consuming stage"),
    _c("modality", "modality", "payload"),
    _c("kind", "edge_kind", "stream: consumer starts on a chunk; whole: one chunk per request"),
    _c("transport", "text", "connector, e.g. in-process, unix-socket"),
    _c("window_chunks", "int32?", "bound on chunks in flight; NULL = unbounded"),
    _c("window_bytes", "int64?", "bound on bytes in flight; NULL = unbounded"),
)

REQUEST = _table(
    "request",
    "client request, failed ones included; a retry is a new epoch of its spans, not a new request",
    "request",
    _c("request", "int64", "number, unique in the run"),
    _c("external_id", "text?", "id in the source system"),
    _c("session", "int64?", "conversation"),
    _c("turn", "int32?", "turn in the conversation, from 0"),
    _c("parent_request", "int64?", "request whose work this one belongs to, e.g. a CFG companion"),
    _c("class", "text", "request class, e.g. short, long"),
    _c("tenant", "text", "who pays"),
    _c("weight", "float64", "share of the tenant; 1 = equal"),
    _c("scheduled_ns", "int64", "arrival planned by the load generator: every latency counts from here"),
    _c("arrival_ns", "int64?", "actual submission; NULL = never submitted"),
    _c("first_output_deadline_ns", "int64?", "absolute deadline of the first consumable output"),
    _c("deadline_ns", "int64?", "absolute deadline of the whole job"),
    _c("input_bytes", "int64?", "size of the request"),
    _c("input_units", "int64?", "prompt tokens, or samples of the input"),
    _c("content", "text?", "content key: requests of equal key ask for the same work, in any run"),
)

OUTCOME = _table(
    "outcome",
    "how a request ended: exactly one row per request",
    "request",
    _c("request", "int64", "request"),
    _c("status", "outcome_status", "terminal state; unfinished = the run ended first"),
    _c("first_output_ns", "int64?", "first consumable output at the client"),
    _c("end_ns", "int64?", "last byte of the last expected output, or the moment the failure was known to the client"),
    _c("output_units", "int64?", "samples, tokens or images delivered"),
    _c("cancel_ns", "int64?", "when the client asked for cancellation"),
    _c("detail", "text?", "error text, reject reason"),
    _c("quality", "float64?", "quality measure; NULL = not measured"),
    _c("quality_metric", "text?", "its name, e.g. wer"),
)

SPAN = _table(
    "span",
    "interval of one (request, stage, replica, chunk, epoch)",
    "span",
    _c("span", "int64", "id, unique in the run over spans and chunks"),
    _c("request", "int64", "request"),
    _c("stage", "text", "stage"),
    _c("replica", "int16", "replica, from 0"),
    _c("epoch", "int16", "attempt, from 0"),
    _c("chunk", "int32", "task number in this stage for this request, from 0; -1 = the whole request"),
    _c("kind", "span_kind", "what the interval is"),
    _c("start_ns", "int64", "start"),
    _c("end_ns", "int64", "end, >= start"),
    _c("cause", "cause", "what unblocked it; for a wait: what ended it"),
    _c("cause_span", "int64?", "span or chunk that did; NULL for arrival, timer and unknown"),
    _c("batch", "int64?", "launch it was part of"),
    _c("bytes", "int64?", "bytes handled"),
    _c("units", "int32?", "tokens, frames, characters handled"),
    _c("proc", "int16", "process that wrote the row"),
)

BATCH = _table(
    "batch",
    "one launch on a device; every member's service span carries its number",
    "batch",
    _c("batch", "int64", "number, unique in the run"),
    _c("stage", "text", "stage"),
    _c("replica", "int16", "replica"),
    _c("members", "int16", "requests in the launch"),
    _c("limit", "int16?", "largest number of members allowed"),
    _c("units", "int32?", "tokens or frames in the launch"),
    _c("closed_by", "batch_close", "why it was launched then"),
    _c("dispatch_ns", "int64", "host began the launch call"),
    _c("device_start_ns", "int64?", "device began; NULL where the device keeps no clock of its own"),
    _c("device_end_ns", "int64?", "device ended"),
    _c("end_ns", "int64", "results were usable on the host"),
)

CHUNK = _table(
    "chunk",
    "hand-off of one payload unit on one edge; written once, by whoever took it over or discarded it",
    "span",
    _c("span", "int64", "id in the number space of spans"),
    _c("edge", "text", "edge"),
    _c("request", "int64", "request"),
    _c("epoch", "int16", "attempt"),
    _c("seq", "int32", "position in the stream, from 0"),
    _c("bytes", "int64?", "payload size"),
    _c("units", "int32?", "tokens, frames, samples"),
    _c("emitted_ns", "int64", "producer had it"),
    _c("sent_ns", "int64", "hand-over began"),
    _c("received_ns", "int64?", "it lay in the consumer's inbox"),
    _c("taken_ns", "int64?", "consumer took responsibility; NULL = discarded or lost"),
    _c("producer_span", "int64?", "service that made it"),
    _c("consumer_span", "int64?", "first service that used it"),
    _c("final", "bool", "last of its stream"),
    _c("sample_start", "int64?", "media edges: absolute index of the first sample"),
    _c("samples", "int32?", "media edges: samples per channel in this chunk; 0 = no sound yet"),
    _c("sample_rate", "int32?", "media edges: samples per second"),
    _c("frame_start", "int32?", "codec frames covered: first"),
    _c("frames", "int32?", "codec frames covered: count"),
    _c("state_generation", "int32?", "generation of the decoder state that made it"),
    _c("crc", "int64?", "CRC-32 of the payload"),
)

CREDIT = _table(
    "credit",
    "credit event on an edge; limits are absolute and cumulative",
    "",
    _c("edge", "text", "edge"),
    _c("request", "int64?", "request that owns the credit; NULL = the edge's shared pool"),
    _c("epoch", "int16", "attempt"),
    _c("event", "credit_event", "what happened"),
    _c("seq", "int32", "order on this (edge, request)"),
    _c("at_ns", "int64", "when"),
    _c("chunks", "int32?", "chunks moved by this event, or absolute limit for grant and refresh"),
    _c("bytes", "int64?", "the same in bytes"),
)

DECISION = _table(
    "decision",
    "evaluation of a control rule (sampled when over budget)",
    "",
    _c("at_ns", "int64", "when"),
    _c("stage", "text?", "where"),
    _c("replica", "int16?", "replica"),
    _c("mode", "control_mode", "mode in force"),
    _c("rule", "text", "rule, kebab-case"),
    _c("candidates", "int32", "tasks it could choose from"),
    _c("chosen_request", "int64?", "its choice"),
    _c("static_request", "int64?", "what stage-local order would have chosen"),
    _c("terms", "json", "the terms that made the score"),
    _c("cost_ns", "int64", "time the evaluation took"),
    _c("fallback_reason", "text?", "why the rule was not followed"),
)

OBJECT = _table(
    "object",
    "event of a state object: KV cache, features, vocoder state, buffer",
    "",
    _c("object", "int64", "number, unique in the run"),
    _c("event", "object_event", "what happened"),
    _c("at_ns", "int64", "when"),
    _c("request", "int64", "owner"),
    _c("stage", "text", "stage that holds it"),
    _c("kind", "text", "kv, vocoder_state, features, buffer"),
    _c("generation", "int32", "generation of the state"),
    _c("lease_until_ns", "int64?", "end of the lease"),
    _c("model_revision", "text?", "weights it belongs to"),
    _c("tenant", "text?", "tenant"),
    _c("bytes", "int64?", "size after the event"),
)

GAUGE_TABLE = _table(
    "gauge",
    "sampled reading",
    "",
    _c("at_ns", "int64", "when"),
    _c("name", "gauge_name", "what was read"),
    _c("stage", "text?", "stage, for queue gauges"),
    _c("replica", "int16?", "replica"),
    _c("proc", "int16", "process"),
    _c("value", "int64?", "reading; NULL = not readable, the event table says why"),
)

ENERGY = _table(
    "energy",
    "reading of an energy counter",
    "",
    _c("source", "energy_source", "counter or model; a model never shares a column with a measurement"),
    _c("device", "text", "what was measured"),
    _c("before_ns", "int64", "clock before the reading"),
    _c("after_ns", "int64", "clock after the reading"),
    _c("counter_mj", "int64?", "cumulative counter, millijoule"),
    _c("power_mw", "int64?", "power, milliwatt"),
    _c("modeled_mj", "int64?", "cumulative modeled energy, millijoule"),
)

HOST = _table(
    "host",
    "host cost of one stage process or thread over an interval",
    "",
    _c("at_ns", "int64", "end of the interval"),
    _c("interval_ns", "int64", "length of the interval"),
    _c("stage", "text?", "stage"),
    _c("replica", "int16?", "replica"),
    _c("proc", "int16", "process"),
    _c("cpu_ns", "int64?", "CPU time of the thread"),
    _c("voluntary_switches", "int64?", "context switches it asked for"),
    _c("involuntary_switches", "int64?", "context switches forced on it"),
    _c("syscalls", "int64?", "system calls"),
    _c("gil_wait_ns", "int64?", "time waiting for the interpreter lock"),
    _c("launch_gap_ns", "int64?", "device idle between launches"),
)

SLO = _table(
    "slo",
    "service-level objective of a class",
    "class metric",
    _c("class", "text", "request class"),
    _c("metric", "text", "name of a request metric, e.g. ttfa, jct"),
    _c("limit_value", "float64", "largest value that meets it, in the metric's own unit (ns for times)"),
)

EVENT = _table(
    "event",
    "what else happened",
    "",
    _c("at_ns", "int64", "when"),
    _c("kind", "event_kind", "what"),
    _c("request", "int64?", "request"),
    _c("stage", "text?", "stage"),
    _c("proc", "int16", "process"),
    _c("detail", "text?", "one line"),
)

IMPORT_NOTE = _table(
    "import_note",
    "what an importer or the recorder could not place",
    "",
    _c("level", "note_level", "how bad"),
    _c("code", "text", "kind of problem, kebab-case"),
    _c("count", "int64", "how often"),
    _c("sample", "text?", "one example"),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        RUN,
        PROC,
        CLOCK_SYNC,
        STAGE,
        EDGE,
        REQUEST,
        OUTCOME,
        SPAN,
        BATCH,
        CHUNK,
        CREDIT,
        DECISION,
        OBJECT,
        GAUGE_TABLE,
        ENERGY,
        HOST,
        SLO,
        EVENT,
        IMPORT_NOTE,
    )
}
