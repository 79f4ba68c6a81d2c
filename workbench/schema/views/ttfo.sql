-- definition: time to first output: scheduled arrival to the first consumable chunk at the client, whatever its
--   modality. Where a trace has no such chunk row (an import), outcome.first_output_ns stands in.
-- unit: ns
-- denominator: requests with a first output, however they ended
-- source: agenda, term TTFO
WITH first_chunk AS (
    SELECT run, request, min(received_ns) AS first_ns
    FROM output_chunk
    WHERE consumable
    GROUP BY run, request
)
SELECT r.run, r.request, coalesce(f.first_ns, o.first_output_ns) - r.scheduled_ns AS ttfo_ns
FROM request AS r
LEFT JOIN first_chunk AS f ON f.run = r.run AND f.request = r.request
LEFT JOIN outcome AS o ON o.run = r.run AND o.request = r.request
WHERE coalesce(f.first_ns, o.first_output_ns) IS NOT NULL
