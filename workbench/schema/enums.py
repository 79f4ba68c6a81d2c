"""Closed vocabularies of the trace tables.

The order of every tuple is frozen: the recorder writes positions, DuckDB sorts in declaration order. Append, never
reorder.
"""

from __future__ import annotations

# What an interval of a (request, stage) is. `unattributed` is a wait that nothing recorded explains: shown, never
# dropped.
SPAN_KIND = (
    "queue",
    "batch_wait",
    "service",
    "transfer",
    "credit_stall",
    "join_wait",
    "residency",
    "preprocess",
    "deliver",
    "gpu",
    "host",
    "unattributed",
)

# Kinds in which a request waits although its inputs are there. Their sum per stage is W_v.
WAIT_KINDS = ("queue", "batch_wait", "credit_stall", "join_wait")

# Kinds in which work is done for the request. Residency is in neither list: it refuses to be summed.
ACTIVITY_KINDS = ("service", "transfer", "preprocess", "deliver")

# What ended the wait before an interval, that is, what unblocked it.
CAUSE = ("arrival", "data", "state", "resource", "credit", "batch", "timer", "retry", "unknown")

PROVENANCE = ("measured", "imported", "emulated", "replayed", "published")

OUTCOME_STATUS = ("ok", "error", "cancelled", "rejected", "timeout", "unfinished")

STAGE_ROLE = ("client", "preprocess", "encoder", "ar", "host", "vocoder", "diffusion", "mux")

MODALITY = ("text", "tokens", "hidden", "features", "phonemes", "codes", "audio", "image", "video", "latent", "mixed")

EDGE_KIND = ("stream", "whole")

# Why a batch was launched when it was.
BATCH_CLOSE = ("full", "timer", "drain", "first_chunk", "deadline")

CREDIT_EVENT = ("grant", "reserve", "take", "return", "discard", "refresh")

CONTROL_MODE = ("static", "shadow", "admission_credit", "joint")

OBJECT_EVENT = ("allocate", "use", "release")

GAUGE = (
    "queue_depth",
    "active",
    "inbox_bytes",
    "rss_bytes",
    "process_cpu_ns",
    "machine_cpu_ns",
    "device_memory_bytes",
    "device_busy_permille",
)

ENERGY_SOURCE = ("nvml", "rapl", "model")

EVENT_KIND = ("cancel", "deadline", "error", "fault", "epoch", "fallback", "unavailable", "note")

NOTE_LEVEL = ("info", "warning", "error")

PROBES = ("on", "off")

ENUMS: dict[str, tuple[str, ...]] = {
    "span_kind": SPAN_KIND,
    "cause": CAUSE,
    "provenance": PROVENANCE,
    "outcome_status": OUTCOME_STATUS,
    "stage_role": STAGE_ROLE,
    "modality": MODALITY,
    "edge_kind": EDGE_KIND,
    "batch_close": BATCH_CLOSE,
    "credit_event": CREDIT_EVENT,
    "control_mode": CONTROL_MODE,
    "object_event": OBJECT_EVENT,
    "gauge_name": GAUGE,
    "energy_source": ENERGY_SOURCE,
    "event_kind": EVENT_KIND,
    "note_level": NOTE_LEVEL,
    "probes": PROBES,
}

# What a fault plan can break. No column stores it (an acted fault is an `event` row), so it is not among ENUMS. The
# positions are the codes of `workbench.control.faults`.
FAULT = (
    "kill",
    "lose",
    "delay",
    "duplicate",
    "reorder",
    "partition",
    "heal",
    "pause",
    "resume",
    "lost_branch",
    "cancel",
    "deadline",
    "clock_step",
    "slow",
    "reconnect",
)

# What a fault plan counts: the messages of an edge, then what a stage or a client does. Positions are codes too.
FAULT_EVENT = ("data", "ack", "credit", "control", "admit", "start", "take")
