-- definition: S_v: time a stage worked on the request: service and preprocess spans over all tasks and attempts. A
--   launch counts in full for each of its members, so that the sum over requests is not the busy time of a replica.
-- unit: ns; tasks counts spans
-- denominator: (request, stage) pairs with work at the stage
-- source: agenda, S_v
SELECT run, request, stage, sum(end_ns - start_ns)::BIGINT AS service_ns, count(*) AS tasks
FROM span
WHERE kind IN ('service', 'preprocess')
GROUP BY run, request, stage
