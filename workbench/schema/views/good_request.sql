-- definition: whether a request ended ok, met every objective of its class and its own deadlines. An objective whose
--   metric has no value cannot be shown to be met: the request is not good, and is_unknown if that is all that speaks
--   against it.
-- unit: boolean
-- denominator: all requests, failed ones included
-- source: goodput = requests meeting all SLOs and the quality gate; the gate is an objective on metric quality
WITH judged AS (
    SELECT r.run, r.request,
           coalesce(bool_or(m.value > s.limit_value), false) AS is_missed,
           bool_or(s.metric IS NOT NULL AND m.value IS NULL) AS is_open
    FROM request AS r
    LEFT JOIN slo AS s ON s.run = r.run AND s.class = r.class
    LEFT JOIN request_metric AS m ON m.run = r.run AND m.request = r.request AND m.metric = s.metric
    GROUP BY r.run, r.request
),
late AS (
    SELECT r.run, r.request,
           coalesce(f.ttfo_ns > r.first_output_deadline_ns - r.scheduled_ns, false)
           OR coalesce(j.jct_ns > r.deadline_ns - r.scheduled_ns, false) AS is_late
    FROM request AS r
    LEFT JOIN ttfo AS f ON f.run = r.run AND f.request = r.request
    LEFT JOIN jct AS j ON j.run = r.run AND j.request = r.request
)
SELECT r.run, r.request, r.class, r.tenant,
       NOT g.is_open AND coalesce(o.status = 'ok' AND NOT l.is_late AND NOT g.is_missed, false) AS is_good,
       g.is_open AND coalesce(o.status = 'ok' AND NOT l.is_late AND NOT g.is_missed, false) AS is_unknown
FROM request AS r
JOIN judged AS g ON g.run = r.run AND g.request = r.request
JOIN late AS l ON l.run = r.run AND l.request = r.request
LEFT JOIN outcome AS o ON o.run = r.run AND o.request = r.request
