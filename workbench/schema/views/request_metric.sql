-- definition: the metrics of request_metrics that an objective can name, one row per request and metric, with NULL
--   values.
-- unit: that of the metric: ns for times, seconds per second, ratio, or the quality measure's own
-- denominator: all requests, failed ones included
-- source: trace contract, table slo
SELECT run, request, class, status, m.metric, m.value
FROM request_metrics,
     LATERAL (VALUES
         ('ttfo', ttfo_ns::DOUBLE), ('ttft', ttft_ns::DOUBLE), ('ttft_stage', ttft_stage_ns::DOUBLE),
         ('ttfa', ttfa_ns::DOUBLE), ('jct', jct_ns::DOUBLE), ('rtf', rtf), ('jct_per_audio_s', jct_per_audio_s),
         ('jitter_iqr', jitter_iqr_ns::DOUBLE), ('jitter_p99', jitter_p99_ns::DOUBLE),
         ('underrun', underrun_ns::DOUBLE), ('slowdown', slowdown), ('submit_lag', submit_lag_ns::DOUBLE),
         ('wait', wait_ns::DOUBLE), ('service', service_ns::DOUBLE), ('quality', quality)
     ) AS m (metric, value)
