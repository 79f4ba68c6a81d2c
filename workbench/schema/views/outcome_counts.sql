-- definition: how requests ended: one row per status of the vocabulary, zero counts included.
-- unit: requests; scheduled = all requests of the run; share of them
-- denominator: all scheduled requests
-- source: failure denominator
WITH status AS (
    SELECT unnest(enum_range(NULL::outcome_status))::outcome_status AS status
),
scheduled AS (
    SELECT run, count(*) AS scheduled
    FROM request
    GROUP BY run
)
SELECT u.run, s.status, count(o.request) AS requests, coalesce(any_value(n.scheduled), 0) AS scheduled,
       count(o.request) / nullif(any_value(n.scheduled), 0) AS share
FROM run AS u
CROSS JOIN status AS s
LEFT JOIN outcome AS o ON o.run = u.run AND o.status = s.status
LEFT JOIN scheduled AS n ON n.run = u.run
GROUP BY u.run, s.status
