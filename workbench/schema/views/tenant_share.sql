-- definition: what each tenant got: good requests per second over its weight, and the mean of 1 / slowdown, in which
--   a failed request counts as 0 and one that the client cancelled not at all.
-- unit: 1/s per weight; ratio, NULL when the isolated time of any request that ended ok is not known
-- denominator: all scheduled requests of the tenant
-- source: agenda G7
WITH alone AS (
    SELECT r.run, r.content, sum(j.jct_ns) AS sum_ns, count(*) AS requests
    FROM request AS r
    JOIN jct AS j ON j.run = r.run AND j.request = r.request
    WHERE r.content IS NOT NULL
    GROUP BY r.run, r.content
),
-- Parts per billion keep the sum over requests in integers, so that it does not depend on the number of threads.
inverse AS (
    SELECT r.run, r.request,
           CASE WHEN o.status = 'ok' THEN (a.sum_ns * 1000000000 // (a.requests * nullif(j.jct_ns, 0)))::BIGINT
                WHEN o.status = 'cancelled' THEN NULL
                WHEN u.isolated_run IS NOT NULL THEN 0
           END AS ppb,
           o.status IS NOT DISTINCT FROM 'cancelled' AS is_cancelled
    FROM request AS r
    JOIN run AS u ON u.run = r.run
    LEFT JOIN outcome AS o ON o.run = r.run AND o.request = r.request
    LEFT JOIN jct AS j ON j.run = r.run AND j.request = r.request
    LEFT JOIN alone AS a ON a.run::VARCHAR = u.isolated_run AND a.content = r.content
)
SELECT r.run, r.tenant, max(r.weight) AS weight, count(*) AS requests, count(*) FILTER (g.is_good) AS good,
       count(*) FILTER (g.is_good) * 1e9 / nullif(any_value(u.last_ns - u.first_ns), 0) / nullif(max(r.weight), 0)
           AS weighted_goodput_per_s,
       CASE WHEN count(*) FILTER (i.ppb IS NULL AND NOT i.is_cancelled) = 0
            THEN sum(i.ppb) / nullif(count(i.ppb), 0) / 1e9
       END AS inverse_slowdown
FROM request AS r
JOIN run AS u ON u.run = r.run
JOIN good_request AS g ON g.run = r.run AND g.request = r.request
JOIN inverse AS i ON i.run = r.run AND i.request = r.request
GROUP BY r.run, r.tenant
