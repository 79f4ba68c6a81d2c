-- rule: duplicate-key
-- severity: error
-- holds: rows of a table have different keys
SELECT run, 'proc' AS table_name, 'proc ' || t.proc AS key, count(*) || ' rows' AS value
FROM proc AS t
GROUP BY run, proc
HAVING count(*) > 1
UNION ALL
SELECT run, 'stage' AS table_name, 'stage ' || t.stage AS key, count(*) || ' rows' AS value
FROM stage AS t
GROUP BY run, stage
HAVING count(*) > 1
UNION ALL
SELECT run, 'edge' AS table_name, 'edge ' || t.edge AS key, count(*) || ' rows' AS value
FROM edge AS t
GROUP BY run, edge
HAVING count(*) > 1
UNION ALL
SELECT run, 'request' AS table_name, 'request ' || t.request AS key, count(*) || ' rows' AS value
FROM request AS t
GROUP BY run, request
HAVING count(*) > 1
UNION ALL
SELECT run, 'batch' AS table_name, 'batch ' || t.batch AS key, count(*) || ' rows' AS value
FROM batch AS t
GROUP BY run, batch
HAVING count(*) > 1
UNION ALL
SELECT run, 'slo' AS table_name, 'class ' || t.class || ' metric ' || t.metric AS key, count(*) || ' rows' AS value
FROM slo AS t
GROUP BY run, class, metric
HAVING count(*) > 1

-- fact: id_fault
-- holds: ids that occur more than once
SELECT run, span, count(*) AS rows
FROM (SELECT run, span FROM span UNION ALL SELECT run, span FROM chunk)
GROUP BY run, span
HAVING count(*) > 1

-- rule: duplicate-id
-- severity: error
-- holds: an id occurs once in span and chunk together
SELECT run, 'span and chunk' AS table_name, 'span ' || span AS key, rows || ' rows' AS value
FROM id_fault

-- rule: missing-outcome
-- severity: error
-- holds: every request has an outcome
SELECT r.run, 'request' AS table_name, 'request ' || r.request AS key, 'no outcome' AS value
FROM request AS r
ANTI JOIN outcome AS o ON o.run = r.run AND o.request = r.request

-- rule: double-outcome
-- severity: error
-- holds: a request has one outcome
SELECT run, 'outcome' AS table_name, 'request ' || request AS key,
       string_agg(status::VARCHAR, ', ' ORDER BY status) AS value
FROM outcome
GROUP BY run, request
HAVING count(*) > 1

-- rule: unknown-request
-- severity: error
-- holds: a row belongs to a request of its run
SELECT t.run, 'outcome' AS table_name, 'request ' || t.request AS key, 'request ' || t.request AS value
FROM outcome AS t
WHERE NOT EXISTS (SELECT 1 FROM request AS k WHERE k.run = t.run AND k.request = t.request)
UNION ALL
SELECT t.run, 'span' AS table_name, 'span ' || t.span AS key, 'request ' || t.request AS value
FROM span AS t
WHERE NOT EXISTS (SELECT 1 FROM request AS k WHERE k.run = t.run AND k.request = t.request)
UNION ALL
SELECT t.run, 'chunk' AS table_name, 'chunk ' || t.span AS key, 'request ' || t.request AS value
FROM chunk AS t
WHERE NOT EXISTS (SELECT 1 FROM request AS k WHERE k.run = t.run AND k.request = t.request)
UNION ALL
SELECT t.run, 'credit' AS table_name, t.edge || ' seq ' || t.seq AS key, 'request ' || t.request AS value
FROM credit AS t
WHERE t.request IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM request AS k WHERE k.run = t.run AND k.request = t.request)
UNION ALL
SELECT t.run, 'object' AS table_name, 'object ' || t.object || ' ' || t.event AS key, 'request ' || t.request AS value
FROM object AS t
WHERE NOT EXISTS (SELECT 1 FROM request AS k WHERE k.run = t.run AND k.request = t.request)
UNION ALL
SELECT t.run, 'event' AS table_name, t.kind || ' at ' || t.at_ns AS key, 'request ' || t.request AS value
FROM event AS t
WHERE t.request IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM request AS k WHERE k.run = t.run AND k.request = t.request)

-- rule: unknown-stage
-- severity: error
-- holds: a row names a stage of its run
SELECT t.run, 'span' AS table_name, 'span ' || t.span AS key, 'stage ' || t.stage AS value
FROM span AS t
WHERE NOT EXISTS (SELECT 1 FROM stage AS k WHERE k.run = t.run AND k.stage = t.stage)
UNION ALL
SELECT t.run, 'batch' AS table_name, 'batch ' || t.batch AS key, 'stage ' || t.stage AS value
FROM batch AS t
WHERE NOT EXISTS (SELECT 1 FROM stage AS k WHERE k.run = t.run AND k.stage = t.stage)
UNION ALL
SELECT t.run, 'object' AS table_name, 'object ' || t.object || ' ' || t.event AS key, 'stage ' || t.stage AS value
FROM object AS t
WHERE NOT EXISTS (SELECT 1 FROM stage AS k WHERE k.run = t.run AND k.stage = t.stage)
UNION ALL
SELECT t.run, 'decision' AS table_name, t.rule || ' at ' || t.at_ns AS key, 'stage ' || t.stage AS value
FROM decision AS t
WHERE t.stage IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM stage AS k WHERE k.run = t.run AND k.stage = t.stage)
UNION ALL
SELECT t.run, 'gauge' AS table_name, t.name || ' at ' || t.at_ns AS key, 'stage ' || t.stage AS value
FROM gauge AS t
WHERE t.stage IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM stage AS k WHERE k.run = t.run AND k.stage = t.stage)
UNION ALL
SELECT t.run, 'host' AS table_name, 'host at ' || t.at_ns AS key, 'stage ' || t.stage AS value
FROM host AS t
WHERE t.stage IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM stage AS k WHERE k.run = t.run AND k.stage = t.stage)
UNION ALL
SELECT t.run, 'event' AS table_name, t.kind || ' at ' || t.at_ns AS key, 'stage ' || t.stage AS value
FROM event AS t
WHERE t.stage IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM stage AS k WHERE k.run = t.run AND k.stage = t.stage)
UNION ALL
SELECT t.run, 'edge', 'edge ' || t.edge, 'stage ' || x.stage
FROM edge AS t, LATERAL (VALUES (t.source), (t.target)) AS x (stage)
WHERE NOT EXISTS (SELECT 1 FROM stage AS k WHERE k.run = t.run AND k.stage = x.stage)

-- rule: unknown-edge
-- severity: error
-- holds: a row names an edge of its run
SELECT t.run, 'chunk' AS table_name, 'chunk ' || t.span AS key, 'edge ' || t.edge AS value
FROM chunk AS t
WHERE NOT EXISTS (SELECT 1 FROM edge AS k WHERE k.run = t.run AND k.edge = t.edge)
UNION ALL
SELECT t.run, 'credit' AS table_name, t.edge || ' seq ' || t.seq AS key, 'edge ' || t.edge AS value
FROM credit AS t
WHERE NOT EXISTS (SELECT 1 FROM edge AS k WHERE k.run = t.run AND k.edge = t.edge)

-- rule: unknown-replica
-- severity: error
-- holds: a replica is one of those that its stage declares, from 0
SELECT t.run, 'span' AS table_name, 'span ' || t.span AS key,
       'replica ' || t.replica || ' of ' || s.replicas AS value
FROM span AS t
JOIN stage AS s ON s.run = t.run AND s.stage = t.stage
WHERE t.replica < 0 OR t.replica >= s.replicas
UNION ALL
SELECT t.run, 'batch', 'batch ' || t.batch, 'replica ' || t.replica || ' of ' || s.replicas
FROM batch AS t
JOIN stage AS s ON s.run = t.run AND s.stage = t.stage
WHERE t.replica < 0 OR t.replica >= s.replicas

-- rule: unknown-batch
-- severity: error
-- holds: a span's launch is a row of batch
SELECT t.run, 'span' AS table_name, 'span ' || t.span AS key, 'batch ' || t.batch AS value
FROM span AS t
ANTI JOIN batch AS b ON b.run = t.run AND b.batch = t.batch
WHERE t.batch IS NOT NULL

-- rule: unknown-process
-- severity: warning
-- holds: a row names a process of its run
SELECT t.run, 'span' AS table_name, 'span ' || t.span AS key, 'proc ' || t.proc AS value
FROM span AS t
WHERE NOT EXISTS (SELECT 1 FROM proc AS k WHERE k.run = t.run AND k.proc = t.proc)
