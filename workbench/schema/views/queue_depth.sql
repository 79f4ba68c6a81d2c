-- definition: tasks at a stage whose input is there and that have not started (queue, batch_wait, credit_stall), as a
--   step function: depth holds from at_ns to the next row. One row per moment: what comes and goes at one moment
--   counts together.
-- unit: tasks
-- denominator: stages with at least one such wait
-- source: step function over wait spans; the running sum is read at the last of several rows of one moment, or ties
--   give false peaks
WITH step AS (
    SELECT run, stage, start_ns AS at_ns, 1::TINYINT AS change
    FROM span
    WHERE kind IN ('queue', 'batch_wait', 'credit_stall')
    UNION ALL
    SELECT run, stage, end_ns AS at_ns, (-1)::TINYINT AS change
    FROM span
    WHERE kind IN ('queue', 'batch_wait', 'credit_stall')
)
SELECT run, stage, at_ns, (sum(change) OVER moment)::BIGINT AS depth
FROM step
WINDOW moment AS (PARTITION BY run, stage ORDER BY at_ns ROWS UNBOUNDED PRECEDING)
QUALIFY lead(at_ns) OVER moment IS DISTINCT FROM at_ns
