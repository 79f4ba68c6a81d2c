-- definition: W_v and S_v per stage: median, 95th percentile (linear interpolation) and mean (rounded down) over
--   requests.
-- unit: ns; requests counts requests seen at the stage
-- denominator: requests with a wait or work at the stage, whatever their end; waits over those whose waits are known
-- source: agenda, W_v and S_v
SELECT w.run, w.stage, count(*) AS requests,
       round(quantile_cont(w.wait_ns, 0.5))::BIGINT AS wait_p50_ns,
       round(quantile_cont(w.wait_ns, 0.95))::BIGINT AS wait_p95_ns,
       (sum(w.wait_ns) // count(w.wait_ns))::BIGINT AS wait_mean_ns,
       round(quantile_cont(s.service_ns, 0.5))::BIGINT AS service_p50_ns,
       round(quantile_cont(s.service_ns, 0.95))::BIGINT AS service_p95_ns,
       (sum(s.service_ns) // count(s.service_ns))::BIGINT AS service_mean_ns
FROM stage_wait AS w
LEFT JOIN stage_service AS s ON s.run = w.run AND s.request = w.request AND s.stage = w.stage
GROUP BY w.run, w.stage
