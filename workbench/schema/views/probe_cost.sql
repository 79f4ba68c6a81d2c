-- definition: what recording cost by calibration: rows taken times calibrated cost of one. jct_share sets it against
--   the completion times of all requests that ended ok; paired runs with probes on and off are the other half of the
--   statement.
-- unit: ns; share; events counts rows
-- denominator: all scheduled requests for cost_per_request_ns; NULL without calibration
-- source: overhead statement of every run
WITH scheduled AS (
    SELECT run, count(*) AS requests
    FROM request
    GROUP BY run
),
completed AS (
    SELECT run, sum(jct_ns) AS jct_ns
    FROM jct
    GROUP BY run
)
SELECT u.run, u.events, u.events_lost, u.probe_ns_per_event AS ns_per_event,
       round(u.events * u.probe_ns_per_event)::BIGINT AS cost_ns,
       round(u.events * u.probe_ns_per_event / nullif(s.requests, 0))::BIGINT AS cost_per_request_ns,
       u.events * u.probe_ns_per_event / nullif(c.jct_ns, 0) AS jct_share
FROM run AS u
LEFT JOIN scheduled AS s ON s.run = u.run
LEFT JOIN completed AS c ON c.run = u.run
