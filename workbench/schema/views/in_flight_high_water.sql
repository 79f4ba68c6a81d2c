-- definition: largest bytes and chunks in flight per edge, and, with edge NULL, over all edges together at one
--   moment.
-- unit: bytes, NULL where the size of any chunk is not known; chunks
-- denominator: edges with a chunk
-- source: agenda G2, high-water memory
WITH together AS (
    SELECT run, sum(bytes) OVER moment AS bytes, sum(chunks) OVER moment AS chunks
    FROM in_flight_step
    WINDOW moment AS (PARTITION BY run ORDER BY at_ns ROWS UNBOUNDED PRECEDING)
    QUALIFY lead(at_ns) OVER moment IS DISTINCT FROM at_ns
),
known AS (
    SELECT run, count(bytes) = count(*) AS is_known
    FROM in_flight_step
    GROUP BY run
)
SELECT run, edge, max(bytes) AS bytes, max(chunks) AS chunks
FROM in_flight_bytes
GROUP BY run, edge
UNION ALL
SELECT t.run, NULL::edge_name, CASE WHEN any_value(k.is_known) THEN max(t.bytes)::BIGINT END, max(t.chunks)::BIGINT
FROM together AS t
JOIN known AS k ON k.run = t.run
GROUP BY t.run
