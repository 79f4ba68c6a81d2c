"""Credit on one stream: the sender's and the receiver's end of a (request, edge), by absolute cumulative limits.

The receiver states how much it has *taken over* and how far the sender may go; both numbers only grow, so a lost
message is repaired by the next one, a repeated or late one says nothing new, and the sender keeps a chunk until it is
taken. Receiving a chunk returns nothing: copied is not consumed.

Sending is in order and the receiver accepts only the next chunk (go back N): a gap or a repeat is dropped and answered
with the present numbers. QUIC (RFC 9000, section 4), PCIe and InfiniBand return credit this way; HTTP/2 adds
increments, which one repeated message breaks.
"""

from __future__ import annotations

from workbench.control.effects import SEND_CREDIT, emit
from workbench.control.layout import (
    ADVERTISED,
    ADVERTISED_BYTES,
    CHUNK_BYTES,
    FINAL_RECEIVED,
    LIMIT,
    LIMIT_BYTES,
    RECEIVED,
    RECEIVER_SIZE,
    SENDER_SIZE,
    SENT,
    SENT_BYTES,
    TAKEN,
    TAKEN_BYTES,
    TAKEN_KNOWN,
    TAKEN_KNOWN_BYTES,
    WIDTH,
    WIDTH_BYTES,
    WINDOW,
    WINDOW_BYTES,
    edge_row,
    receiver,
    sender,
)
from workbench.control.window import observe, raised, window
from workbench.twin import Vector, rule


@rule
def open_sender(g: Vector, m: Vector, r: int, e: int) -> None:
    """Start the sending end afresh: nothing sent, and the window that both ends know beforehand."""
    at = sender(g, r, e)
    for i in range(SENDER_SIZE):
        m[at + i] = 0
    m[at + LIMIT] = g[edge_row(g, e) + WINDOW]
    m[at + LIMIT_BYTES] = g[edge_row(g, e) + WINDOW_BYTES]


@rule
def open_receiver(g: Vector, m: Vector, r: int, e: int) -> None:
    """Start the receiving end afresh, with the same window."""
    at = receiver(g, r, e)
    for i in range(RECEIVER_SIZE):
        m[at + i] = 0
    m[at + WIDTH] = m[at + ADVERTISED] = g[edge_row(g, e) + WINDOW]
    m[at + WIDTH_BYTES] = m[at + ADVERTISED_BYTES] = g[edge_row(g, e) + WINDOW_BYTES]


@rule
def may_send(g: Vector, m: Vector, r: int, e: int) -> bool:
    """Whether the window lets one more chunk begin. A stream with nothing in flight may always have one."""
    at = sender(g, r, e)
    if m[at + SENT] == m[at + TAKEN_KNOWN]:
        return True
    chunk = g[edge_row(g, e) + CHUNK_BYTES]
    return m[at + SENT] < m[at + LIMIT] and m[at + SENT_BYTES] + chunk <= m[at + LIMIT_BYTES]


@rule
def learn(m: Vector, at: int, taken: int, taken_bytes: int, limit: int, limit_bytes: int) -> None:
    """Take a credit message in at the sending end at `at`; whatever is not news is ignored, field by field."""
    if taken > m[at + TAKEN_KNOWN]:
        m[at + TAKEN_KNOWN] = taken
        m[at + TAKEN_KNOWN_BYTES] = taken_bytes
    m[at + LIMIT] = max(m[at + LIMIT], limit)
    m[at + LIMIT_BYTES] = max(m[at + LIMIT_BYTES], limit_bytes)


@rule
def accept(m: Vector, at: int, seq: int, final: int) -> bool:
    """Whether chunk `seq` is the next one for the receiving end at `at`; if so it lies in the inbox now."""
    if seq != m[at + RECEIVED]:
        return False
    m[at + RECEIVED] += 1
    m[at + FINAL_RECEIVED] = final
    return True


@rule
def take(m: Vector, at: int, size_bytes: int) -> None:
    """Take responsibility for the oldest chunk in the inbox: only this returns its credit."""
    m[at + TAKEN] += 1
    m[at + TAKEN_BYTES] += size_bytes
    resize(m, at, m[at + WIDTH], m[at + WIDTH_BYTES])


@rule
def resize(m: Vector, at: int, width: int, width_bytes: int) -> None:
    """Change the window of the receiving end at `at`, as a credit protocol decides; what was advertised stays."""
    m[at + WIDTH] = width
    m[at + WIDTH_BYTES] = width_bytes
    m[at + ADVERTISED] = raised(m[at + ADVERTISED], m[at + TAKEN], width)
    m[at + ADVERTISED_BYTES] = raised(m[at + ADVERTISED_BYTES], m[at + TAKEN_BYTES], width_bytes)


@rule
def adapt(
    p: Vector,
    law: int,
    s: Vector,
    w: int,
    m: Vector,
    at: int,
    now_ns: int,
    taken_bytes: int,
    queue_delay_ns: int,
    stalled: int,
) -> None:
    """Let the protocol's window law learn from one takeover at the receiving end at `at`, and apply its answer.

    ``p, law, s, w, now_ns, taken_bytes, queue_delay_ns, stalled`` are those of `window.observe`. Drivers call it after
    each takeover, before they send the credit message.
    """
    observe(p, law, s, w, now_ns, taken_bytes, queue_delay_ns, stalled)
    width, width_bytes = window(p, law, s, w)
    resize(m, at, width, width_bytes)


@rule
def advertise(g: Vector, m: Vector, out: Vector, r: int, e: int, epoch: int) -> None:
    """Send the present numbers against the edge: after a takeover, after a repeat, and on the refresh timer."""
    at = receiver(g, r, e)
    emit(
        out, SEND_CREDIT, r, e, epoch, m[at + TAKEN], m[at + TAKEN_BYTES], m[at + ADVERTISED], m[at + ADVERTISED_BYTES]
    )
