-- rule: early-submission
-- severity: error
-- holds: a request is not submitted before it is scheduled
SELECT run, 'request' AS table_name, 'request ' || request AS key,
       (arrival_ns - scheduled_ns) || ' ns' AS value
FROM request
WHERE arrival_ns < scheduled_ns

-- rule: ok-without-end
-- severity: error
-- holds: a request that ended ok has an end
SELECT run, 'outcome' AS table_name, 'request ' || request AS key, 'end_ns NULL' AS value
FROM outcome
WHERE status = 'ok' AND end_ns IS NULL

-- rule: end-before-arrival
-- severity: error
-- holds: first output, cancel and end come no earlier than the arrival
SELECT o.run, 'outcome' AS table_name, 'request ' || o.request AS key,
       (least(o.end_ns, o.first_output_ns, o.cancel_ns) - r.scheduled_ns) || ' ns' AS value
FROM outcome AS o
JOIN request AS r ON r.run = o.run AND r.request = o.request
WHERE least(o.end_ns, o.first_output_ns, o.cancel_ns) < r.scheduled_ns

-- rule: output-after-end
-- severity: error
-- holds: the first output comes no later than the end
SELECT run, 'outcome' AS table_name, 'request ' || request AS key,
       (first_output_ns - end_ns) || ' ns' AS value
FROM outcome
WHERE first_output_ns > end_ns

-- rule: first-output-mismatch
-- severity: error
-- holds: the outcome's first output is the arrival of the first consumable chunk
SELECT o.run, 'outcome' AS table_name, 'request ' || o.request AS key,
       (o.first_output_ns - min(c.received_ns)) || ' ns' AS value
FROM outcome AS o
JOIN output_chunk AS c ON c.run = o.run AND c.request = o.request
WHERE c.consumable
GROUP BY o.run, o.request, o.first_output_ns
HAVING o.first_output_ns <> min(c.received_ns)

-- rule: end-mismatch
-- severity: error
-- holds: a request that ended ok ends with the arrival of its last final chunk
SELECT o.run, 'outcome' AS table_name, 'request ' || o.request AS key,
       (o.end_ns - max(c.received_ns)) || ' ns' AS value
FROM outcome AS o
JOIN output_chunk AS c ON c.run = o.run AND c.request = o.request
WHERE c.final AND o.status = 'ok'
GROUP BY o.run, o.request, o.end_ns
HAVING o.end_ns <> max(c.received_ns)

-- rule: ok-without-final-chunk
-- severity: error
-- holds: a request that ended ok got a final chunk, where the run recorded chunks at the client
SELECT o.run, 'outcome' AS table_name, 'request ' || o.request AS key, 'no final chunk' AS value
FROM outcome AS o
ANTI JOIN (SELECT * FROM output_chunk WHERE final) AS c ON c.run = o.run AND c.request = o.request
WHERE o.status = 'ok' AND o.run IN (SELECT run FROM output_chunk)

-- rule: sample-total
-- severity: error
-- holds: where all outputs are audio, the samples that arrived are the outcome's output_units
SELECT o.run, 'outcome' AS table_name, 'request ' || o.request AS key,
       sum(c.samples) || ' samples, output_units ' || o.output_units AS value
FROM outcome AS o
JOIN output_chunk AS c ON c.run = o.run AND c.request = o.request
GROUP BY o.run, o.request, o.output_units, o.status
HAVING o.status = 'ok' AND bool_and(c.modality = 'audio' AND c.samples IS NOT NULL)
   AND sum(c.samples) <> o.output_units

-- rule: cancelled-without-cancel
-- severity: warning
-- holds: a cancelled request has the moment of its cancel
SELECT run, 'outcome' AS table_name, 'request ' || request AS key, 'cancel_ns NULL' AS value
FROM outcome
WHERE status = 'cancelled' AND cancel_ns IS NULL

-- rule: delivery-after-cancel
-- severity: warning
-- holds: the client takes nothing after its cancel
SELECT c.run, 'chunk' AS table_name, 'chunk ' || c.span AS key,
       'taken ' || (k.taken_ns - o.cancel_ns) || ' ns after' AS value
FROM output_chunk AS c
JOIN chunk AS k ON k.run = c.run AND k.span = c.span
JOIN outcome AS o ON o.run = c.run AND o.request = c.request
WHERE k.taken_ns > o.cancel_ns

-- rule: unknown-metric
-- severity: warning
-- holds: an objective names a request metric
SELECT run, 'slo' AS table_name, 'class ' || class || ' metric ' || metric AS key, metric AS value
FROM slo
WHERE metric NOT IN (
    'ttfo', 'ttft', 'ttft_stage', 'ttfa', 'jct', 'rtf', 'jct_per_audio_s', 'jitter_iqr', 'jitter_p99', 'underrun',
    'slowdown', 'submit_lag', 'wait', 'service', 'quality'
)
