-- definition: playback deficit of a real-time listener who starts at the first media chunk, without prebuffer: the
--   largest (arrival - moment the sound before it ran out), 0 if none was late. It equals the total silence a
--   listener hears, and the prebuffer that would have avoided it. underruns counts the silences.
-- unit: ns
-- denominator: requests that got sound, per request the worst client edge
-- source: agenda, term jitter; playhead starts at the first chunk
WITH stream_chunk AS (
    SELECT run, request, edge, received_ns, epoch, seq,
           received_ns - first_value(received_ns) OVER stream
           - coalesce(sum(duration_ns) OVER (stream ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS late_ns
    FROM output_chunk
    WHERE has_audio AND duration_ns IS NOT NULL
    WINDOW stream AS (PARTITION BY run, request, edge ORDER BY received_ns, epoch, seq)
),
worst AS (
    SELECT run, request, edge, late_ns,
           max(late_ns) OVER (
               PARTITION BY run, request, edge ORDER BY received_ns, epoch, seq
               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS before_ns
    FROM stream_chunk
),
stream AS (
    SELECT run, request, edge, max(late_ns) AS late_ns, count(*) FILTER (late_ns > before_ns) AS underruns
    FROM worst
    GROUP BY run, request, edge
)
SELECT run, request, max(late_ns)::BIGINT AS underrun_ns, max(underruns) AS underruns
FROM stream
GROUP BY run, request
