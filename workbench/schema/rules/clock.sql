-- rule: clock-step
-- severity: error
-- holds: a process clock rises, and keeps its distance to the reference clock up to the reading errors and 500 ppm
SELECT run, 'clock_sync' AS table_name, 'proc ' || proc || ' at ' || local_ns AS key,
       CASE WHEN local_ns < before_local_ns THEN 'back by ' || (before_local_ns - local_ns)
            ELSE 'steps by ' || (ref_ns - before_ref_ns - (local_ns - before_local_ns)) END || ' ns' AS value
FROM (
    SELECT *, lag(local_ns) OVER clock AS before_local_ns, lag(ref_ns) OVER clock AS before_ref_ns,
           lag(err_ns) OVER clock AS before_err_ns
    FROM clock_sync
    WINDOW clock AS (PARTITION BY run, proc ORDER BY rowid)
)
WHERE local_ns < before_local_ns
   OR abs(ref_ns - before_ref_ns - (local_ns - before_local_ns))
      > err_ns + before_err_ns + (local_ns - before_local_ns) // 2000

-- rule: wall-clock-step
-- severity: warning
-- holds: the wall clock keeps its distance to the process clock; no interval uses it
SELECT run, 'clock_sync' AS table_name, 'proc ' || proc || ' at ' || local_ns AS key,
       'steps by ' || (wall_ns - before_wall_ns - (local_ns - before_local_ns)) || ' ns' AS value
FROM (
    SELECT *, lag(local_ns) OVER clock AS before_local_ns, lag(wall_ns) OVER clock AS before_wall_ns,
           lag(err_ns) OVER clock AS before_err_ns
    FROM clock_sync
    WHERE wall_ns IS NOT NULL
    WINDOW clock AS (PARTITION BY run, proc ORDER BY rowid)
)
WHERE abs(wall_ns - before_wall_ns - (local_ns - before_local_ns))
      > err_ns + before_err_ns + abs(local_ns - before_local_ns) // 2000
