"""Credit protocols compared: the worst case over every schedule of a small world, and single runs in simulated time.

The two answer different questions. The *worst case* is exact: the largest number of promised bytes in any reachable
state, whatever the scheduler, the network and the client do. Its worlds are tiny and untimed, so windows are scaled
down with them. A *timed run* is one schedule at full size: it shows what a protocol costs when nothing is adversarial,
and bounds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import polars as pl

from workbench.control import window
from workbench.control.layout import USED
from workbench.graph import StageGraph
from workbench.trace import store
from workbench.units import MS_NS
from workbench.verify.scenario import Scenario, bounded, chain
from workbench.verify.survey import peak
from workbench.verify.timed import Work, run

CHUNKS = 2
# Small worlds have chunks of one byte. A window that no stream of the world can fill is as good as none.
FORMS: dict[str, tuple[str, ...]] = {
    "a window that never binds": ("unbounded", "aimd", "model-predictive"),
    "a fixed window per stream": ("fixed-items", "fixed-bytes"),
    "a window under B_max": ("closed-loop",),
}
SMALL_B_MAX = 2

CHUNK_BYTES = 8_192
TIMED_CHUNKS = 24
TIMED_B_MAX = 20 * CHUNK_BYTES
CASES = ("consumer 4 times slower", "client pauses 300 ms")


def small_world(form: str, requests: int) -> Scenario:
    """The world of one form of protocol: one stage that feeds a client, two chunks per request, no fault."""
    graph = chain(1)
    if form == "a window that never binds":
        plan = bounded(graph, requests, window=CHUNKS, spare_bytes=requests * CHUNKS)
    elif form == "a fixed window per stream":
        plan = bounded(graph, requests, window=1, spare_bytes=requests * CHUNKS)
    else:
        plan = bounded(graph, requests, window=CHUNKS, total_bytes=SMALL_B_MAX)
    return Scenario(plan, CHUNKS)


def worst_cases(requests: Sequence[int]) -> pl.DataFrame:
    """Largest number of promised bytes over all reachable states.

    Parameters
    ----------
    requests : sequence of int
        Requests in the system at once.

    Returns
    -------
    polars.DataFrame
        ``form``, ``protocols`` (rows of ``protocols.toml`` that have it), ``requests``, ``peak_bytes`` (exact),
        ``steps`` (the fewest that lead there), ``states`` (all that were visited).
    """
    rows = []
    for form, protocols in FORMS.items():
        for count in requests:
            g, m = small_world(form, count).vectors()
            found = peak(g, m, lambda g, m: m[USED])
            rows.append(
                {"form": form, "protocols": ", ".join(protocols), "requests": count, "peak_bytes": found.value}
                | {"steps": len(found.trace), "states": found.states}
            )
    return pl.DataFrame(rows)


def timed_work(case: str, graph: StageGraph) -> Work:
    """Three requests of 24 chunks; the last stage is four times slower, or the client stops reading."""
    slow = case == CASES[0]
    service = dict.fromkeys(graph.order, (5 if slow else 10) * MS_NS)
    service[graph.order[-1]] = (20 if slow else 10) * MS_NS
    return Work(
        service,
        tuple(start * 10 * MS_NS for start in range(3)),
        TIMED_CHUNKS,
        {edge.name: CHUNK_BYTES for edge in graph.edges},
        message_ns=MS_NS,
        pause_ns=(0, 0) if slow else (200 * MS_NS, 500 * MS_NS),
    )


def timed_runs(names: Sequence[str] = ()) -> pl.DataFrame:
    """One run of each protocol, all that ship if none is named, in each of two cases: two stages, three requests.

    Returns
    -------
    polars.DataFrame
        ``protocol``, ``case``, ``promised_chunks`` (high-water of the ledger), ``in_flight_chunks`` (high-water of the
        view ``in_flight_high_water``), ``stall_ms`` (sum of view ``credit_stall``), ``first_output_ms`` (mean of view
        ``ttfo``), ``end_ms`` (when the last request had all its output).
    """
    graph, shipped = chain(2), window.load()
    rows = []
    for name in names or shipped:
        for case in CASES:
            made = run(graph, timed_work(case, graph), shipped[name], total_bytes=TIMED_B_MAX, label=name)
            with store.load_tables([made.tables]) as connection:
                rows.append(
                    {"protocol": name, "case": case, "promised_chunks": made.peak_bytes // CHUNK_BYTES}
                    | {
                        "in_flight_chunks": _number(
                            connection, "SELECT chunks FROM in_flight_high_water WHERE edge IS NULL"
                        ),
                        "stall_ms": _number(connection, "SELECT coalesce(sum(credit_stall_ns), 0) FROM credit_stall")
                        / MS_NS,
                        "first_output_ms": _number(connection, "SELECT avg(ttfo_ns) FROM ttfo") / MS_NS,
                        "end_ms": _number(connection, "SELECT max(end_ns) FROM outcome") / MS_NS,
                    }
                )
    return pl.DataFrame(rows)


def _number(connection: duckdb.DuckDBPyConnection, query: str) -> float:
    ((value,),) = connection.execute(query).fetchall()
    return float(value)
