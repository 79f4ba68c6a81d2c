-- definition: capacity of a stage: service_per_s (mu_v) = requests per second of busy time, times replicas;
--   arrival_per_s (lambda_v) = the same requests over the measured window; load = their ratio. load < 1 at every
--   stage is necessary, not sufficient, for a stable system when stages share a device.
-- unit: 1/s; ns; counts
-- denominator: stages with service or preprocess spans, failed requests included
-- source: agenda, lambda_v < mu_v
WITH work AS (
    SELECT run, stage, count(*) AS launches, sum(end_ns - start_ns)::BIGINT AS busy_ns
    FROM launch
    GROUP BY run, stage
),
task AS (
    SELECT run, stage, sum(tasks)::BIGINT AS tasks, count(*) AS requests
    FROM stage_service
    GROUP BY run, stage
)
SELECT w.run, w.stage, s.replicas, t.requests, t.tasks, w.launches, w.busy_ns,
       t.requests * s.replicas * 1e9 / nullif(w.busy_ns, 0) AS service_per_s,
       t.requests * 1e9 / nullif(u.last_ns - u.first_ns, 0) AS arrival_per_s,
       w.busy_ns / nullif(s.replicas * (u.last_ns - u.first_ns), 0) AS load
FROM work AS w
JOIN task AS t ON t.run = w.run AND t.stage = w.stage
JOIN run AS u ON u.run = w.run
LEFT JOIN stage AS s ON s.run = w.run AND s.stage = w.stage
