-- fact: cause_fault
-- holds: spans whose cause does not exist, came later, stands elsewhere, or did not end the wait
WITH cause AS (
    SELECT run, span, request, stage, replica, start_ns, end_ns, NULL::BIGINT AS taken_ns, false AS is_chunk
    FROM span
UNION ALL
    SELECT c.run, c.span, c.request, e.target, NULL::SMALLINT, c.sent_ns, c.received_ns, c.taken_ns, true
    FROM chunk AS c
    LEFT JOIN edge AS e ON e.run = c.run AND e.edge = c.edge
),
linked AS (
    SELECT s.run, s.span, s.request, s.stage, s.kind, s.start_ns, s.end_ns, s.cause, s.cause_span,
           c.span IS NULL AS is_unknown,
           CASE WHEN s.cause <> 'credit' THEN c.end_ns WHEN c.is_chunk THEN c.taken_ns ELSE c.start_ns END
               AS moment_ns,
           CASE WHEN s.cause IN ('credit', 'batch') THEN CASE WHEN c.is_chunk THEN c.taken_ns
                                                              WHEN s.cause = 'credit' THEN c.start_ns END
           END AS other_ns,
           c.end_ns AS done_ns,
           CASE s.cause WHEN 'resource' THEN c.is_chunk OR c.stage <> s.stage OR c.replica <> s.replica
                        WHEN 'state' THEN c.is_chunk OR c.stage <> s.stage OR c.request <> s.request
                        WHEN 'data' THEN c.is_chunk AND c.stage <> s.stage
                        ELSE false END AS is_misplaced,
           s.kind IN ('queue', 'batch_wait', 'credit_stall', 'join_wait') AS is_wait
    FROM span AS s
    LEFT JOIN cause AS c ON c.run = s.run AND c.span = s.cause_span
    WHERE s.cause_span IS NOT NULL
)
SELECT l.*,
       NOT l.is_unknown AND NOT l.is_wait AND l.kind IN ('service', 'preprocess', 'host')
           AND coalesce(l.moment_ns > l.start_ns + t.tolerance_ns, true) AS is_late,
       NOT l.is_unknown AND l.is_wait AND l.cause NOT IN ('timer', 'arrival', 'unknown')
           AND l.done_ns IS DISTINCT FROM l.end_ns AND l.other_ns IS DISTINCT FROM l.end_ns AS is_other_end
FROM linked AS l
JOIN tolerance AS t ON t.run = l.run
WHERE l.is_unknown OR l.is_misplaced OR is_late OR is_other_end

-- rule: unknown-cause
-- severity: error
-- holds: a cause is a span or chunk of the run
SELECT t.run, 'span' AS table_name, 'span ' || t.span AS key,
       'cause_span ' || t.cause_span AS value
FROM cause_fault AS t
WHERE t.is_unknown

-- rule: cause-after-start
-- severity: error
-- holds: what unblocked a span happened before it started, up to the clock error between hosts
SELECT t.run, 'span' AS table_name, 'span ' || t.span AS key,
       coalesce((t.moment_ns - t.start_ns) || ' ns late', 'never happened') AS value
FROM cause_fault AS t
WHERE t.is_late

-- rule: cause-misplaced
-- severity: error
-- holds: resource names work on the same replica, state the request's own work, data a chunk to the same stage
SELECT t.run, 'span' AS table_name, 'span ' || t.span AS key,
       t.cause || ' by ' || t.cause_span AS value
FROM cause_fault AS t
WHERE t.is_misplaced

-- rule: cause-unnamed
-- severity: warning
-- holds: a recorded span says which interval unblocked it
SELECT s.run, 'span' AS table_name, 'span ' || s.span AS key, 'cause ' || s.cause AS value
FROM span AS s
JOIN run AS u ON u.run = s.run
WHERE s.cause_span IS NULL AND s.cause IN ('data', 'state', 'resource', 'batch')
  AND u.provenance IN ('measured', 'emulated', 'replayed')

-- rule: wait-not-ended-by-cause
-- severity: warning
-- holds: a wait ends with the cause it names; one that does not stays unattributed
SELECT t.run, 'span' AS table_name, 'span ' || t.span AS key,
       t.kind || ' ends ' || coalesce((t.end_ns - t.done_ns) || ' ns after its cause', 'without its cause')
           AS value
FROM cause_fault AS t
WHERE t.is_other_end AND NOT (t.cause = 'credit' AND EXISTS (
    SELECT 1
    FROM credit AS c
    JOIN edge AS e ON e.run = c.run AND e.edge = c.edge
    WHERE c.run = t.run AND coalesce(c.request = t.request, true) AND e.source = t.stage AND c.at_ns = t.end_ns
      AND c.event IN ('grant', 'return', 'refresh')
))
