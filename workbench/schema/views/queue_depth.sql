-- definition: tasks at a stage whose input is there and that have not started (queue, batch_wait, credit_stall), as a step
--   function: depth holds from at_ns to the next row. Moments at which as many tasks leave as enter have no row.
-- unit: tasks
-- denominator: stages with at least one such wait
-- source: step function over wait spans; +1 and -1 are added per moment before the running sum, or ties give false peaks
WITH step AS (
    SELECT run, stage, start_ns AS at_ns, 1 AS change FROM span WHERE kind IN ('queue', 'batch_wait', 'credit_stall')
    UNION ALL
    SELECT run, stage, end_ns AS at_ns, -1 AS change FROM span WHERE kind IN ('queue', 'batch_wait', 'credit_stall')
),
moment AS (
    SELECT run, stage, at_ns, sum(change) AS change
    FROM step
    GROUP BY run, stage, at_ns
    HAVING sum(change) <> 0
)
SELECT run, stage, at_ns, (sum(change) OVER (PARTITION BY run, stage ORDER BY at_ns))::BIGINT AS depth
FROM moment
