-- fact: tolerance
-- holds: clock error of a run: times of different hosts compare only up to the errors of both readings
SELECT u.run, CASE WHEN p.boots > 1 THEN 2 * coalesce(c.err_ns, 0) ELSE 0 END AS tolerance_ns
FROM run AS u
LEFT JOIN (SELECT run, count(DISTINCT boot_id) AS boots FROM proc GROUP BY run) AS p ON p.run = u.run
LEFT JOIN (SELECT run, max(err_ns) AS err_ns FROM clock_sync GROUP BY run) AS c ON c.run = u.run

-- rule: reversed-window
-- severity: error
-- holds: a run's window ends after it starts
SELECT run, 'run' AS table_name, 'run ' || label AS key, first_ns || ' to ' || last_ns || ' ns' AS value
FROM run
WHERE last_ns < first_ns

-- rule: reversed-interval
-- severity: error
-- holds: a span ends no earlier than it starts
SELECT run, 'span' AS table_name, 'span ' || span AS key, (end_ns - start_ns) || ' ns' AS value
FROM span
WHERE end_ns < start_ns

-- rule: reversed-transfer
-- severity: error
-- holds: a chunk is emitted, sent, received and taken in this order, up to the clock error between hosts
SELECT c.run, 'chunk' AS table_name, 'chunk ' || c.span AS key,
       concat_ws(', ',
           CASE WHEN c.sent_ns < c.emitted_ns THEN 'sent ' || (c.sent_ns - c.emitted_ns) || ' ns' END,
           CASE WHEN c.received_ns < c.sent_ns - t.tolerance_ns
                THEN 'received ' || (c.received_ns - c.sent_ns) || ' ns' END,
           CASE WHEN c.taken_ns < c.received_ns THEN 'taken ' || (c.taken_ns - c.received_ns) || ' ns' END
       ) AS value
FROM chunk AS c
JOIN tolerance AS t ON t.run = c.run
WHERE c.sent_ns < c.emitted_ns OR c.received_ns < c.sent_ns - t.tolerance_ns OR c.taken_ns < c.received_ns
   OR (c.received_ns IS NULL AND c.taken_ns IS NOT NULL)

-- rule: reversed-launch
-- severity: error
-- holds: a launch is dispatched, starts and ends on the device, and ends on the host in this order
SELECT run, 'batch' AS table_name, 'batch ' || batch AS key,
       concat_ws(' ', dispatch_ns, device_start_ns, device_end_ns, end_ns) AS value
FROM batch
WHERE end_ns < dispatch_ns OR device_start_ns < dispatch_ns OR device_end_ns < device_start_ns
   OR end_ns < device_end_ns

-- rule: negative-size
-- severity: error
-- holds: sizes and counts are not negative
SELECT run, 'span' AS table_name, 'span ' || span AS key, concat_ws(' ', bytes, units) AS value
FROM span
WHERE bytes < 0 OR units < 0
UNION ALL
SELECT run, 'chunk', 'chunk ' || span, concat_ws(' ', bytes, units, sample_start, samples, frame_start, frames)
FROM chunk
WHERE bytes < 0 OR units < 0 OR sample_start < 0 OR samples < 0 OR frame_start < 0 OR frames < 0
UNION ALL
SELECT run, 'batch', 'batch ' || batch, concat_ws(' ', members, "limit", units)
FROM batch
WHERE members < 1 OR "limit" < 1 OR units < 0
UNION ALL
SELECT run, 'request', 'request ' || request, concat_ws(' ', input_bytes, input_units)
FROM request
WHERE input_bytes < 0 OR input_units < 0

-- rule: bad-weight
-- severity: error
-- holds: a request's weight is a positive number
SELECT run, 'request' AS table_name, 'request ' || request AS key, 'weight ' || weight AS value
FROM request
WHERE NOT (weight > 0 AND isfinite(weight))
