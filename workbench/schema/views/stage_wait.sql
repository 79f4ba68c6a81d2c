-- definition: W_v: time a request waited at a stage although the stage had, or could have had, its input; wait_ns
--   adds the recorded kinds queue, batch_wait, credit_stall and join_wait over all tasks and attempts of the request
--   at the stage.
-- unit: ns; NULL = the trace does not record this kind of wait
-- denominator: (request, stage) pairs with a wait or work at the stage
-- source: agenda, W_v
WITH known AS (
    SELECT run,
           bool_or(kind = 'queue') AS queue,
           bool_or(kind = 'batch_wait') AS batch_wait,
           bool_or(kind = 'credit_stall') AS credit_stall,
           bool_or(kind = 'join_wait') AS join_wait
    FROM recorded_wait
    GROUP BY run
),
total AS (
    SELECT run, request, stage,
           coalesce(sum(end_ns - start_ns) FILTER (kind = 'queue'), 0)::BIGINT AS queue_ns,
           coalesce(sum(end_ns - start_ns) FILTER (kind = 'batch_wait'), 0)::BIGINT AS batch_wait_ns,
           coalesce(sum(end_ns - start_ns) FILTER (kind = 'credit_stall'), 0)::BIGINT AS credit_stall_ns,
           coalesce(sum(end_ns - start_ns) FILTER (kind = 'join_wait'), 0)::BIGINT AS join_wait_ns
    FROM span
    WHERE kind IN ('queue', 'batch_wait', 'credit_stall', 'join_wait', 'service', 'preprocess')
    GROUP BY run, request, stage
)
SELECT t.run, t.request, t.stage,
       CASE WHEN k.run IS NOT NULL THEN t.queue_ns + t.batch_wait_ns + t.credit_stall_ns + t.join_wait_ns END
           AS wait_ns,
       CASE WHEN k.queue THEN t.queue_ns END AS queue_ns,
       CASE WHEN k.batch_wait THEN t.batch_wait_ns END AS batch_wait_ns,
       CASE WHEN k.credit_stall THEN t.credit_stall_ns END AS credit_stall_ns,
       CASE WHEN k.join_wait THEN t.join_wait_ns END AS join_wait_ns
FROM total AS t
LEFT JOIN known AS k ON k.run = t.run
