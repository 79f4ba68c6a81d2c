-- definition: time to first audio: scheduled arrival to the first chunk with samples at the client. Where a run has
--   no chunk rows on client edges and all of those carry audio (an import), outcome.first_output_ns stands in.
-- unit: ns
-- denominator: requests that got sound, however they ended
-- source: agenda, term TTFA
WITH first_audio AS (
    SELECT run, request, min(received_ns) AS first_ns
    FROM output_chunk
    WHERE has_audio
    GROUP BY run, request
),
stand_in AS (
    SELECT e.run
    FROM edge AS e
    JOIN stage AS t ON t.run = e.run AND t.stage = e.target
    WHERE t.role = 'client' AND e.run NOT IN (SELECT DISTINCT run FROM output_chunk)
    GROUP BY e.run
    HAVING bool_and(e.modality = 'audio')
),
first_sound AS (
    SELECT run, request, first_ns FROM first_audio
    UNION ALL
    SELECT o.run, o.request, o.first_output_ns
    FROM outcome AS o
    JOIN stand_in AS i ON i.run = o.run
    WHERE o.first_output_ns IS NOT NULL
)
SELECT r.run, r.request, f.first_ns - r.scheduled_ns AS ttfa_ns
FROM request AS r
JOIN first_sound AS f ON f.run = r.run AND f.request = r.request
