-- definition: time from the client's cancel to the last trace of work on the request: end of a span, arrival or
--   take-over of a chunk, credit or object event. 0 when nothing came after.
-- unit: ns; NULL when probes were off, so that work would have left no trace
-- denominator: requests with a cancel
-- source: agenda G2, cancel clean-up time
WITH trace AS (
    SELECT run, request, max(end_ns) AS last_ns FROM span GROUP BY run, request
    UNION ALL
    SELECT run, request, max(greatest(sent_ns, received_ns, taken_ns)) FROM chunk GROUP BY run, request
    UNION ALL
    SELECT run, request, max(at_ns) FROM credit WHERE request IS NOT NULL GROUP BY run, request
    UNION ALL
    SELECT run, request, max(at_ns) FROM object GROUP BY run, request
),
last_trace AS (
    SELECT run, request, max(last_ns) AS last_ns
    FROM trace
    GROUP BY run, request
)
SELECT o.run, o.request,
       CASE WHEN u.probes = 'on' THEN greatest(coalesce(l.last_ns, o.cancel_ns) - o.cancel_ns, 0) END AS cleanup_ns
FROM outcome AS o
JOIN run AS u ON u.run = o.run
LEFT JOIN last_trace AS l ON l.run = o.run AND l.request = o.request
WHERE o.cancel_ns IS NOT NULL
