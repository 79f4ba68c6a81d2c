-- fact: launch_fact
-- holds: launches with the extent of their members
SELECT run, stage, replica, batch, min(span) AS span, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
       max(start_ns) AS last_start_ns, min(end_ns) AS first_end_ns,
       count(*) FILTER (kind = 'service') AS members
FROM span
WHERE kind IN ('service', 'preprocess')
GROUP BY run, stage, replica, batch, CASE WHEN batch IS NULL THEN span END

-- fact: task_fault
-- holds: work and waits of one (request, stage, epoch) that overlap, and services out of order
WITH task AS (
    SELECT run, span, kind, start_ns, chunk,
           lag(end_ns) OVER attempt AS before_ns,
           max(CASE WHEN kind = 'service' THEN chunk END) OVER (
               attempt ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS before_chunk
    FROM span
    WHERE kind IN ('queue', 'batch_wait', 'credit_stall', 'service', 'preprocess')
    WINDOW attempt AS (PARTITION BY run, request, stage, epoch ORDER BY start_ns, end_ns, span)
)
SELECT run, span, kind, start_ns, chunk, before_ns, before_chunk,
       before_ns > start_ns AS is_overlap,
       kind = 'service' AND chunk >= 0 AND before_chunk >= chunk AS is_disordered
FROM task
WHERE before_ns > start_ns OR (kind = 'service' AND chunk >= 0 AND before_chunk >= chunk)

-- rule: launch-overlap
-- severity: error
-- holds: a replica runs one launch at a time
SELECT run, 'span' AS table_name, 'span ' || span AS key,
       (before_ns - start_ns) || ' ns on ' || stage || ' ' || replica AS value
FROM (
    SELECT *, max(end_ns) OVER (
               PARTITION BY run, stage, replica ORDER BY start_ns, end_ns, span
               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS before_ns
    FROM launch_fact
)
WHERE before_ns > start_ns

-- rule: launch-uneven
-- severity: error
-- holds: all members of a launch start at its dispatch and end at its end
SELECT f.run, 'batch' AS table_name, 'batch ' || f.batch AS key,
       concat_ws(' to ', f.start_ns - b.dispatch_ns, f.end_ns - b.end_ns) || ' ns off' AS value
FROM launch_fact AS f
JOIN batch AS b ON b.run = f.run AND b.batch = f.batch
WHERE f.start_ns <> b.dispatch_ns OR f.last_start_ns <> b.dispatch_ns OR f.end_ns <> b.end_ns
   OR f.first_end_ns <> b.end_ns OR f.stage <> b.stage OR f.replica <> b.replica

-- rule: launch-members
-- severity: error
-- holds: a launch has as many services as members, and no more members than its limit
SELECT b.run, 'batch' AS table_name, 'batch ' || b.batch AS key,
       coalesce(f.members, 0) || ' services, members ' || b.members || coalesce(', limit ' || b."limit", '')
           AS value
FROM batch AS b
LEFT JOIN launch_fact AS f
       ON f.run = b.run AND f.batch = b.batch AND f.stage = b.stage AND f.replica = b.replica
WHERE b.members > b."limit"
   OR (b.members <> coalesce(f.members, 0) AND b.run IN (SELECT run FROM launch_fact WHERE batch IS NOT NULL))

-- rule: task-overlap
-- severity: error
-- holds: work and waits of one request at one stage follow one another
SELECT t.run, 'span' AS table_name, 'span ' || t.span AS key,
       t.kind || ' starts ' || (t.before_ns - t.start_ns) || ' ns early' AS value
FROM task_fault AS t
WHERE t.is_overlap

-- rule: task-order
-- severity: error
-- holds: services of one request at one stage come in the order of their chunk numbers, each once
SELECT t.run, 'span' AS table_name, 'span ' || t.span AS key,
       'chunk ' || t.chunk || ' after ' || t.before_chunk AS value
FROM task_fault AS t
WHERE t.is_disordered
