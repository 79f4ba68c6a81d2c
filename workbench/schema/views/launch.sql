-- definition: pieces of work that held a replica: the service and preprocess spans of one batch together, or one span
--   without a batch. first_span is the lowest span id among the members.
-- unit: ns; members counts spans
-- denominator: all service and preprocess spans
-- source: trace contract, table batch
SELECT run, stage, replica, batch, min(span) AS first_span, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
       count(*) AS members
FROM span
WHERE kind IN ('service', 'preprocess') AND batch IS NOT NULL
GROUP BY run, stage, replica, batch
UNION ALL
SELECT run, stage, replica, NULL::BIGINT, span, start_ns, end_ns, 1
FROM span
WHERE kind IN ('service', 'preprocess') AND batch IS NULL
