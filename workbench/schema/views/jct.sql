-- definition: job completion time: scheduled arrival to the arrival of the last final chunk over all client edges.
--   Where a trace has no such chunk row (an import), outcome.end_ns stands in.
-- unit: ns
-- denominator: requests with status ok; the others have no completion time and stay in every other denominator
-- source: agenda, term JCT
WITH last_chunk AS (
    SELECT run, request, max(received_ns) AS last_ns
    FROM output_chunk
    WHERE final
    GROUP BY run, request
)
SELECT r.run, r.request, coalesce(l.last_ns, o.end_ns) - r.scheduled_ns AS jct_ns
FROM request AS r
JOIN outcome AS o ON o.run = r.run AND o.request = r.request
LEFT JOIN last_chunk AS l ON l.run = r.run AND l.request = r.request
WHERE o.status = 'ok' AND coalesce(l.last_ns, o.end_ns) IS NOT NULL
