-- definition: time a request's tasks waited at a stage, with the replica free, for more members of their launch.
-- unit: ns
-- denominator: (request, stage) pairs of runs that record this wait; 0 = did not wait
-- source: agenda G3
SELECT run, request, stage, batch_wait_ns
FROM stage_wait
WHERE batch_wait_ns IS NOT NULL
