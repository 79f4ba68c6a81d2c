-- definition: requests in the system, scheduled and not ended, as a step function with one row per moment. A rising
--   trend means that the load exceeds the capacity and that percentiles depend on the run's length. A request without
--   an end stays in.
-- unit: requests
-- denominator: all scheduled requests
-- source: instability test: regress in-flight requests on time
WITH step AS (
    SELECT run, scheduled_ns AS at_ns, 1 AS change FROM request
    UNION ALL
    SELECT run, end_ns AS at_ns, -1 AS change FROM outcome WHERE end_ns IS NOT NULL
)
SELECT run, at_ns, (sum(change) OVER moment)::BIGINT AS in_flight
FROM step
WINDOW moment AS (PARTITION BY run ORDER BY at_ns ROWS UNBOUNDED PRECEDING)
QUALIFY lead(at_ns) OVER moment IS DISTINCT FROM at_ns
