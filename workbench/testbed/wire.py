"""Messages between the load generator and the server, over a Unix socket on one host.

Both ends are this package on one machine; the socket lives in a private folder. Times are CLOCK_MONOTONIC, which all
processes of a host share.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.testbed.contract import ChunkHeader


@dataclass(frozen=True, slots=True)
class Submit:
    """Client to server: a request. `chunk` and `lag_span` are ids of client rows that the server's rows refer to."""

    request: int
    digits: tuple[int, ...]
    tenant: str
    deadline_ns: int | None
    sent_ns: int
    chunk: int
    lag_span: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Client to server: give this request up."""

    request: int


@dataclass(frozen=True, slots=True)
class PcmChunk:
    """Server to client: audio, with the header that proves where it belongs."""

    header: ChunkHeader
    pcm: bytes
    span: int
    producer_span: int
    emitted_ns: int
    sent_ns: int


@dataclass(frozen=True, slots=True)
class Finished:
    """Server to client: the request ended without its full output."""

    request: int
    status: str
    detail: str | None


@dataclass(frozen=True, slots=True)
class Goodbye:
    """Either way: nothing more will come."""
