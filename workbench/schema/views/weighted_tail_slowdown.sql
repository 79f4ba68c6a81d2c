-- definition: weighted quantiles of slowdown: the least s such that requests of slowdown <= s carry at least the
--   share 0.5, 0.95 or 0.99 of the weight. A request that failed (error, rejected, timeout, unfinished) counts as
--   infinitely slow.
-- unit: ratio; counts
-- denominator: scheduled requests except those the client cancelled (counted in cancelled) and those that ended ok
--   without an isolated time (counted in unknown); no row for a run without an isolated run
-- source: agenda, weighted tail slowdown
WITH valued AS (
    SELECT r.run, r.request, o.status, round(r.weight * 1e6)::BIGINT AS weight,
           CASE WHEN o.status = 'ok' THEN s.slowdown ELSE 'inf'::DOUBLE END AS slowdown
    FROM request AS r
    JOIN run AS u ON u.run = r.run
    LEFT JOIN outcome AS o ON o.run = r.run AND o.request = r.request
    LEFT JOIN slowdown AS s ON s.run = r.run AND s.request = r.request
    WHERE u.isolated_run IS NOT NULL
),
ranked AS (
    SELECT run, slowdown,
           sum(weight) OVER (PARTITION BY run ORDER BY slowdown, request) AS below,
           sum(weight) OVER (PARTITION BY run) AS total
    FROM valued
    WHERE slowdown IS NOT NULL AND status IS DISTINCT FROM 'cancelled'
),
counted AS (
    SELECT run,
           count(*) FILTER (slowdown IS NOT NULL AND status IS DISTINCT FROM 'cancelled') AS requests,
           count(*) FILTER (isinf(slowdown) AND status IS DISTINCT FROM 'cancelled') AS failed,
           count(*) FILTER (slowdown IS NULL) AS unknown,
           count(*) FILTER (status = 'cancelled') AS cancelled
    FROM valued
    GROUP BY run
),
quantile AS (
    SELECT run,
           min(slowdown) FILTER (below * 2 >= total) AS p50,
           min(slowdown) FILTER (below * 20 >= total * 19) AS p95,
           min(slowdown) FILTER (below * 100 >= total * 99) AS p99
    FROM ranked
    GROUP BY run
)
SELECT c.run, q.p50, q.p95, q.p99, c.requests, c.failed, c.unknown, c.cancelled
FROM counted AS c
LEFT JOIN quantile AS q ON q.run = c.run
