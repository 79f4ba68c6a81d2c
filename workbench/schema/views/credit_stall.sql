-- definition: time a request's tasks were held at a stage because an out-edge had no credit.
-- unit: ns
-- denominator: (request, stage) pairs of runs that record this wait; 0 = was not held
-- source: agenda G2
SELECT run, request, stage, credit_stall_ns
FROM stage_wait
WHERE credit_stall_ns IS NOT NULL
