-- fact: hand_off_fault
-- holds: chunks whose producer or consumer does not exist, stands elsewhere, or worked at the wrong time
WITH linked AS (
    SELECT c.run, c.span, c.sent_ns, c.received_ns, c.producer_span, c.consumer_span,
           p.end_ns AS made_ns, u.start_ns AS used_ns,
           -- With probes off the stages name their spans and record none of them.
           r.probes = 'on' AND c.producer_span IS NOT NULL AND p.span IS NULL AS no_producer,
           r.probes = 'on' AND c.consumer_span IS NOT NULL AND u.span IS NULL AS no_consumer,
           coalesce(p.stage <> e.source, false) OR coalesce(u.stage <> e.target, false) AS is_misplaced
    FROM chunk AS c
    JOIN run AS r ON r.run = c.run
    LEFT JOIN edge AS e ON e.run = c.run AND e.edge = c.edge
    LEFT JOIN span AS p ON p.run = c.run AND p.span = c.producer_span
    LEFT JOIN span AS u ON u.run = c.run AND u.span = c.consumer_span
)
SELECT *, coalesce(made_ns > sent_ns, false) AS is_early,
       used_ns IS NOT NULL AND coalesce(used_ns < received_ns, true) AS is_before_data
FROM linked
WHERE no_producer OR no_consumer OR is_misplaced OR is_early OR is_before_data

-- rule: unknown-service
-- severity: error
-- holds: a chunk's producer and consumer are spans of the run
SELECT t.run, 'chunk' AS table_name, 'chunk ' || t.span AS key,
       concat_ws(', ', CASE WHEN t.no_producer THEN 'producer_span ' || t.producer_span END,
                       CASE WHEN t.no_consumer THEN 'consumer_span ' || t.consumer_span END) AS value
FROM hand_off_fault AS t
WHERE t.no_producer OR t.no_consumer

-- rule: hand-off-misplaced
-- severity: error
-- holds: a chunk's producer works at the edge's source, its consumer at the edge's target
SELECT t.run, 'chunk' AS table_name, 'chunk ' || t.span AS key,
       concat_ws(' to ', t.producer_span, t.consumer_span) AS value
FROM hand_off_fault AS t
WHERE t.is_misplaced

-- rule: sent-before-made
-- severity: error
-- holds: a chunk is sent no earlier than its producer ends
SELECT t.run, 'chunk' AS table_name, 'chunk ' || t.span AS key,
       (t.sent_ns - t.made_ns) || ' ns' AS value
FROM hand_off_fault AS t
WHERE t.is_early

-- rule: service-before-data
-- severity: error
-- holds: a service starts no earlier than the chunks it uses arrive
SELECT t.run, 'chunk' AS table_name, 'chunk ' || t.span AS key,
       coalesce((t.used_ns - t.received_ns) || ' ns', 'never received') AS value
FROM hand_off_fault AS t
WHERE t.is_before_data
