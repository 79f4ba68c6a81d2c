-- definition: what enters and leaves an edge. A chunk is in flight from emitted_ns, when its producer had it, until
--   taken_ns. A discarded chunk has no such moment: it counts until its request's end, or the run's, an upper bound.
-- unit: bytes, NULL on edges where the size of any chunk is not known; chunks
-- denominator: two rows per chunk
-- source: agenda, B(t)
WITH flight AS (
    SELECT c.run, c.edge, c.bytes, c.emitted_ns,
           coalesce(
               c.taken_ns,
               greatest(coalesce(c.received_ns, c.sent_ns), coalesce(o.end_ns, u.last_ns))
           ) AS landed_ns
    FROM chunk AS c
    JOIN run AS u ON u.run = c.run
    LEFT JOIN outcome AS o ON o.run = c.run AND o.request = c.request
),
sized AS (
    SELECT run, edge, count(bytes) = count(*) AS is_known
    FROM chunk
    GROUP BY run, edge
),
step AS (
    SELECT run, edge, emitted_ns AS at_ns, bytes, 1 AS chunks FROM flight
    UNION ALL
    SELECT run, edge, landed_ns AS at_ns, -bytes, -1 AS chunks FROM flight
)
SELECT s.run, s.edge, s.at_ns, CASE WHEN z.is_known THEN s.bytes END AS bytes, s.chunks
FROM step AS s
JOIN sized AS z ON z.run = s.run AND z.edge = s.edge
