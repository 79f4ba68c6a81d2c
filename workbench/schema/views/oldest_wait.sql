-- definition: age of the task that has waited longest at a stage (queue, batch_wait, credit_stall), as the corners of
--   a sawtooth: it grows by 1 ns per ns between rows. Where it drops there are two rows of one at_ns, the larger
--   value first in time.
-- unit: ns
-- denominator: stages with at least one such wait
-- source: agenda step 1, oldest wait; a task is the oldest only while no earlier one outlives it
WITH task AS (
    SELECT run, stage, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM span
    WHERE kind IN ('queue', 'batch_wait', 'credit_stall')
    GROUP BY run, stage, request, epoch, chunk
),
outlived AS (
    SELECT run, stage, start_ns, end_ns,
           max(end_ns) OVER (
               PARTITION BY run, stage ORDER BY start_ns, end_ns DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS before_ns
    FROM task
    WHERE end_ns > start_ns
),
oldest AS (
    SELECT run, stage, start_ns, end_ns, greatest(start_ns, coalesce(before_ns, start_ns)) AS from_ns,
           lead(start_ns) OVER (PARTITION BY run, stage ORDER BY start_ns) AS next_ns
    FROM outlived
    WHERE before_ns IS NULL OR end_ns > before_ns
)
SELECT run, stage, from_ns AS at_ns, from_ns - start_ns AS oldest_wait_ns FROM oldest
UNION ALL
SELECT run, stage, end_ns, end_ns - start_ns FROM oldest
UNION ALL
SELECT run, stage, end_ns, 0 FROM oldest WHERE next_ns IS NULL OR next_ns > end_ns
