-- definition: time from entering a stage to leaving it: queue, service and waiting for input together. A recorded
--   residency span wins; else first input, wait or work to last wait or work, per attempt. Residencies of stages that
--   stream overlap, so they are never added up: not over stages, attempts or requests.
-- unit: ns
-- denominator: (request, stage, attempt) triples seen at the stage
-- source: agenda, term residency
WITH recorded AS (
    SELECT run, request, stage, epoch, min(start_ns) AS enter_ns, max(end_ns) AS leave_ns
    FROM span
    WHERE kind = 'residency'
    GROUP BY run, request, stage, epoch
),
worked AS (
    SELECT run, request, stage, epoch, min(start_ns) AS enter_ns, max(end_ns) AS leave_ns
    FROM span
    WHERE kind IN ('queue', 'batch_wait', 'credit_stall', 'join_wait', 'service', 'preprocess')
    GROUP BY run, request, stage, epoch
),
input AS (
    SELECT c.run, c.request, e.target AS stage, c.epoch, min(c.received_ns) AS enter_ns
    FROM chunk AS c
    JOIN edge AS e ON e.run = c.run AND e.edge = c.edge
    GROUP BY c.run, c.request, e.target, c.epoch
),
derived AS (
    SELECT w.run, w.request, w.stage, w.epoch, least(w.enter_ns, i.enter_ns) AS enter_ns, w.leave_ns
    FROM worked AS w
    LEFT JOIN input AS i ON i.run = w.run AND i.request = w.request AND i.stage = w.stage AND i.epoch = w.epoch
)
SELECT run, request, stage, epoch, leave_ns - enter_ns AS residency_ns, true AS is_recorded
FROM recorded
UNION ALL
SELECT run, request, stage, epoch, leave_ns - enter_ns AS residency_ns, false AS is_recorded
FROM derived
WHERE (run, request, stage, epoch) NOT IN (SELECT (run, request, stage, epoch) FROM recorded)
