-- definition: time to first text: scheduled arrival to the first text chunk with units at the client (scope client),
--   or to the first text or tokens that an autoregressive stage handed on (scope stage), which no user saw.
-- unit: ns
-- denominator: per scope, requests that produced text
-- source: agenda, term TTFT
WITH first_text AS (
    SELECT run, request, 'client' AS scope, min(received_ns) AS first_ns
    FROM output_chunk
    WHERE modality = 'text' AND units > 0
    GROUP BY run, request
    UNION ALL
    SELECT c.run, c.request, 'stage' AS scope, min(c.emitted_ns) AS first_ns
    FROM chunk AS c
    JOIN edge AS e ON e.run = c.run AND e.edge = c.edge
    JOIN stage AS s ON s.run = e.run AND s.stage = e.source
    WHERE s.role = 'ar' AND e.modality IN ('text', 'tokens') AND c.units > 0
    GROUP BY c.run, c.request
)
SELECT r.run, r.request, f.scope, f.first_ns - r.scheduled_ns AS ttft_ns
FROM request AS r
JOIN first_text AS f ON f.run = r.run AND f.request = r.request
