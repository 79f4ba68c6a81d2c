-- definition: B(t) per edge: bytes and chunks that the producer had and the consumer had not yet taken over, as a
--   step function with one row per moment: values hold from at_ns to the next row.
-- unit: bytes, NULL on edges where the size of any chunk is not known; chunks
-- denominator: edges with a chunk
-- source: agenda, B(t); see in_flight_step for discarded chunks
SELECT run, edge, at_ns, (sum(bytes) OVER moment)::BIGINT AS bytes, (sum(chunks) OVER moment)::BIGINT AS chunks
FROM in_flight_step
WINDOW moment AS (PARTITION BY run, edge ORDER BY at_ns ROWS UNBOUNDED PRECEDING)
QUALIFY lead(at_ns) OVER moment IS DISTINCT FROM at_ns
