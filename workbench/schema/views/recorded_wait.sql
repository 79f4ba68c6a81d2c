-- definition: kinds of wait whose absence means zero: the run's own recorder was on, or the trace holds at least one
--   row of the kind. For any other (run, kind) no row means not known.
-- unit: none
-- denominator: (run, wait kind) pairs that a run can speak about
-- source: trace contract, unknown is not zero
SELECT r.run, k.kind
FROM run AS r
CROSS JOIN (SELECT unnest(['queue', 'batch_wait', 'credit_stall', 'join_wait'])::span_kind AS kind) AS k
WHERE (r.probes = 'on' AND r.provenance IN ('measured', 'emulated', 'replayed'))
   OR (r.run, k.kind) IN (SELECT DISTINCT run, kind FROM span)
