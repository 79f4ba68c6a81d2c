-- definition: share of the measured window in which a device ran, by its own clock: union of [device_start_ns,
--   device_end_ns] of the launches of all stages placed on it, cut to the window.
-- unit: ns; shares of the window
-- denominator: every device named in table stage, the client's excepted; NULL, with the reason, unless each launch
--   was timed
-- source: agenda, GPU busy and idle
WITH placed AS (
    SELECT DISTINCT run, device
    FROM stage
    WHERE role <> 'client'
),
timed AS (
    SELECT b.run, s.device,
           greatest(b.device_start_ns, u.first_ns) AS start_ns,
           least(b.device_end_ns, u.last_ns) AS end_ns,
           b.device_start_ns IS NOT NULL AND b.device_end_ns IS NOT NULL AS is_timed
    FROM batch AS b
    JOIN stage AS s ON s.run = b.run AND s.stage = b.stage
    JOIN run AS u ON u.run = b.run
),
fresh AS (
    SELECT run, device, end_ns,
           greatest(start_ns, coalesce(max(end_ns) OVER (
               PARTITION BY run, device ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ), start_ns)) AS start_ns
    FROM timed
    WHERE is_timed AND end_ns > start_ns
),
busy AS (
    SELECT run, device, sum(greatest(end_ns - start_ns, 0))::BIGINT AS busy_ns
    FROM fresh
    GROUP BY run, device
),
counted AS (
    SELECT run, device, count(*) AS launches, count(*) FILTER (is_timed) AS timed_launches
    FROM timed
    GROUP BY run, device
),
filled AS (
    SELECT p.run, p.device, coalesce(c.launches, 0) AS launches, coalesce(c.timed_launches, 0) AS timed_launches,
           u.last_ns - u.first_ns AS window_ns,
           CASE WHEN c.launches = c.timed_launches THEN coalesce(b.busy_ns, 0) END AS busy_ns
    FROM placed AS p
    JOIN run AS u ON u.run = p.run
    LEFT JOIN counted AS c ON c.run = p.run AND c.device = p.device
    LEFT JOIN busy AS b ON b.run = p.run AND b.device = p.device
)
SELECT run, device, launches, timed_launches, busy_ns, window_ns,
       busy_ns / nullif(window_ns, 0) AS busy_share,
       (window_ns - busy_ns) / nullif(window_ns, 0) AS idle_share,
       CASE WHEN launches = 0 THEN 'no launches recorded'
            WHEN timed_launches = 0 THEN 'no device clock'
            WHEN timed_launches < launches THEN 'some launches without device times'
       END AS reason
FROM filled
