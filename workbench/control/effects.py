"""What a step of the machine asks its driver to do: a short list of records in a preallocated vector.

``out[0]`` counts the records; each has `EFFECT_SIZE` integers from ``out[1]`` on. The driver turns them into messages
and rows of the trace: the replay engine into events, the testbed into sends, the explorer into channel contents.
"""

from __future__ import annotations

from workbench.control.layout import EDGES, REQUESTS, STAGES
from workbench.twin import Vector, rule

KIND, WHO, WHERE, AT_EPOCH, A, B, C, D, EFFECT_SIZE = range(9)

(
    _NONE,
    SEND_START,  # controller -> root stage WHERE
    SEND_STOP,  # controller -> stage WHERE
    SEND_STOPPED,  # stage WHERE -> controller
    SEND_NOTICE,  # controller -> client; A = outcome
    SEND_DATA,  # on edge WHERE: A = sequence, B = bytes, C = 1 for the final chunk
    SEND_CREDIT,  # against edge WHERE: A, B = chunks and bytes taken; C, D = limit in chunks and bytes
    LAUNCHED,  # stage WHERE put a task on its device; A = slot, B = generation of the slot
    RECORDED,  # stage WHERE recorded the end of a launch; A = 1 if its result was thrown away
    COMMITTED,  # the client took chunk A of edge WHERE for good
    SUPPRESSED,  # the client had chunk A of edge WHERE already: credit returned, nothing delivered
    DROPPED,  # chunk A of edge WHERE was not taken: a repeat, a gap, another epoch, or a stream that ended
    RELEASED,  # stage WHERE gave slot A up; B = generation it had
    ADMITTED,
    REFUSED,  # not admitted; A = verdict, B = reason
    ENDED,  # the request has its terminal state; A = outcome
    FREED,  # everything the request held is back
) = range(17)


@rule
def room(g: Vector) -> int:
    """Integers that the list of one step needs at most: a worker that dies can end every request."""
    return 1 + EFFECT_SIZE * (g[REQUESTS] * (2 * g[STAGES] + 6) + 2 * g[EDGES])


@rule
def emit(
    out: Vector, kind: int, r: int, where: int, epoch: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0
) -> None:
    """Append one record."""
    at = 1 + out[0] * EFFECT_SIZE
    out[at + KIND] = kind
    out[at + WHO] = r
    out[at + WHERE] = where
    out[at + AT_EPOCH] = epoch
    out[at + A] = a
    out[at + B] = b
    out[at + C] = c
    out[at + D] = d
    out[0] += 1
