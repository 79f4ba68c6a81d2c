-- definition: how late the load generator submitted: actual minus scheduled arrival. A run is void when its p99
--   exceeds the larger of 5 ms and 1 % of the median latency.
-- unit: ns
-- denominator: requests that were submitted
-- source: open-loop load contract
SELECT run, request, arrival_ns - scheduled_ns AS submit_lag_ns
FROM request
WHERE arrival_ns IS NOT NULL
