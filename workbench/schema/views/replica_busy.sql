-- definition: share of the measured window in which a replica worked: union of its launches, cut to [first_ns,
--   last_ns] of the run.
-- unit: ns; shares of the window
-- denominator: every replica declared in table stage, the client excepted; NULL where the run holds no service spans
-- source: agenda, GPU idle; busy here is the host's view of the replica, device_busy the device's own
WITH cut AS (
    SELECT l.run, l.stage, l.replica, greatest(l.start_ns, u.first_ns) AS start_ns, least(l.end_ns, u.last_ns) AS end_ns
    FROM launch AS l
    JOIN run AS u ON u.run = l.run
),
fresh AS (
    SELECT run, stage, replica, end_ns,
           greatest(start_ns, coalesce(max(end_ns) OVER (
               PARTITION BY run, stage, replica ORDER BY start_ns, end_ns
               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ), start_ns)) AS start_ns
    FROM cut
    WHERE end_ns > start_ns
),
busy AS (
    SELECT run, stage, replica, sum(greatest(end_ns - start_ns, 0))::BIGINT AS busy_ns
    FROM fresh
    GROUP BY run, stage, replica
),
declared AS (
    SELECT run, stage, unnest(range(replicas))::SMALLINT AS replica
    FROM stage
    WHERE role <> 'client'
),
filled AS (
    SELECT d.run, d.stage, d.replica, u.last_ns - u.first_ns AS window_ns,
           CASE WHEN d.run IN (SELECT DISTINCT run FROM launch) THEN coalesce(b.busy_ns, 0) END AS busy_ns
    FROM declared AS d
    JOIN run AS u ON u.run = d.run
    LEFT JOIN busy AS b ON b.run = d.run AND b.stage = d.stage AND b.replica = d.replica
)
SELECT run, stage, replica, busy_ns, window_ns,
       busy_ns / nullif(window_ns, 0) AS busy_share,
       (window_ns - busy_ns) / nullif(window_ns, 0) AS idle_share
FROM filled
