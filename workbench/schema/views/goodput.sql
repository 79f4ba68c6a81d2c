-- definition: good requests (see good_request) per second of the measured window. quality_gated says whether every
--   class has an objective on quality: without one the number is throughput under deadlines and ranks nothing.
-- unit: 1/s; counts; share
-- denominator: all scheduled requests
-- source: goodput = requests meeting all SLOs and the quality gate per wall time
WITH gated AS (
    SELECT r.run, bool_and(s.class IS NOT NULL) AS quality_gated
    FROM (SELECT DISTINCT run, class FROM request) AS r
    LEFT JOIN slo AS s ON s.run = r.run AND s.class = r.class AND s.metric = 'quality'
    GROUP BY r.run
)
SELECT g.run, count(*) FILTER (g.is_good) AS good, count(*) FILTER (g.is_unknown) AS unknown, count(*) AS requests,
       count(*) FILTER (g.is_good) / count(*) AS good_share,
       any_value(u.last_ns - u.first_ns) AS window_ns,
       count(*) FILTER (g.is_good) * 1e9 / nullif(any_value(u.last_ns - u.first_ns), 0) AS goodput_per_s,
       any_value(q.quality_gated) AS quality_gated
FROM good_request AS g
JOIN run AS u ON u.run = g.run
JOIN gated AS q ON q.run = g.run
GROUP BY g.run
