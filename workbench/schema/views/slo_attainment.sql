-- definition: share of scheduled requests of a class whose metric is within its limit. A request without the value
--   did not meet it; unknown counts those of them that ended ok, so that attainment + unknown / requests is the upper
--   bound. A request may meet a first-output objective and fail later.
-- unit: share; requests, met and unknown count
-- denominator: all scheduled requests of the class; NULL when nothing at all is known about the metric
-- source: agenda, SLO attainment
WITH judged AS (
    SELECT s.run, s.class, s.metric, s.limit_value,
           count(r.request) AS requests,
           count(*) FILTER (m.value <= s.limit_value) AS met,
           count(*) FILTER (m.value IS NULL AND o.status = 'ok') AS unknown,
           count(m.metric) > 0 AS is_metric
    FROM slo AS s
    LEFT JOIN request AS r ON r.run = s.run AND r.class = s.class
    LEFT JOIN outcome AS o ON o.run = r.run AND o.request = r.request
    LEFT JOIN request_metric AS m ON m.run = r.run AND m.request = r.request AND m.metric = s.metric
    GROUP BY s.run, s.class, s.metric, s.limit_value
)
SELECT run, class, metric, limit_value, requests, met, unknown,
       CASE WHEN is_metric AND unknown < requests THEN met / requests END AS attainment
FROM judged
