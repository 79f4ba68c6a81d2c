-- definition: spread of (gap between the arrivals of two successive media chunks - playing time of the first of
--   them): its interquartile range and 99th percentile, both by linear interpolation. A positive value is a late
--   chunk.
-- unit: ns; gaps counts the differences
-- denominator: requests with at least two media chunks on one client edge
-- source: agenda, term jitter
WITH gap AS (
    SELECT run, request, received_ns - lag(received_ns) OVER stream - lag(duration_ns) OVER stream AS late_ns
    FROM output_chunk
    WHERE has_audio
    WINDOW stream AS (PARTITION BY run, request, edge ORDER BY received_ns, epoch, seq)
)
SELECT run, request,
       round(quantile_cont(late_ns, 0.75) - quantile_cont(late_ns, 0.25))::BIGINT AS iqr_ns,
       round(quantile_cont(late_ns, 0.99))::BIGINT AS p99_ns,
       count(*) AS gaps
FROM gap
WHERE late_ns IS NOT NULL
GROUP BY run, request
