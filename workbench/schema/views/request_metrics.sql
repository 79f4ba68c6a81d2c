-- definition: one row per request with every per-request metric, each defined by the view of its name.
-- unit: ns for *_ns, seconds for *_s, ratios for rtf, jct_per_audio_s and slowdown; NULL = not known or did not
--   happen
-- denominator: all requests, failed ones included
-- source: agenda, the model
WITH waited AS (
    SELECT run, request, sum(wait_ns)::BIGINT AS wait_ns, sum(queue_ns)::BIGINT AS queue_ns,
           sum(batch_wait_ns)::BIGINT AS batch_wait_ns, sum(credit_stall_ns)::BIGINT AS credit_stall_ns,
           sum(join_wait_ns)::BIGINT AS join_wait_ns
    FROM stage_wait
    GROUP BY run, request
),
served AS (
    SELECT run, request, sum(service_ns)::BIGINT AS service_ns
    FROM stage_service
    GROUP BY run, request
)
SELECT r.run, r.request, r.class, r.tenant, r.weight, o.status, r.scheduled_ns, r.content,
       l.submit_lag_ns, fo.ttfo_ns, ft.ttft_ns, fs.ttft_ns AS ttft_stage_ns, fa.ttfa_ns, j.jct_ns,
       rt.rtf, ja.jct_per_audio_s, ji.iqr_ns AS jitter_iqr_ns, ji.p99_ns AS jitter_p99_ns, u.underrun_ns, u.underruns,
       a.audio_s, a.samples, sl.slowdown,
       w.wait_ns, w.queue_ns, w.batch_wait_ns, w.credit_stall_ns, w.join_wait_ns, s.service_ns,
       o.quality, o.quality_metric
FROM request AS r
LEFT JOIN outcome AS o ON o.run = r.run AND o.request = r.request
LEFT JOIN submit_lag AS l ON l.run = r.run AND l.request = r.request
LEFT JOIN ttfo AS fo ON fo.run = r.run AND fo.request = r.request
LEFT JOIN ttft AS ft ON ft.run = r.run AND ft.request = r.request AND ft.scope = 'client'
LEFT JOIN ttft AS fs ON fs.run = r.run AND fs.request = r.request AND fs.scope = 'stage'
LEFT JOIN ttfa AS fa ON fa.run = r.run AND fa.request = r.request
LEFT JOIN jct AS j ON j.run = r.run AND j.request = r.request
LEFT JOIN rtf AS rt ON rt.run = r.run AND rt.request = r.request
LEFT JOIN jct_per_audio_s AS ja ON ja.run = r.run AND ja.request = r.request
LEFT JOIN jitter AS ji ON ji.run = r.run AND ji.request = r.request
LEFT JOIN underrun AS u ON u.run = r.run AND u.request = r.request
LEFT JOIN audio AS a ON a.run = r.run AND a.request = r.request
LEFT JOIN slowdown AS sl ON sl.run = r.run AND sl.request = r.request
LEFT JOIN waited AS w ON w.run = r.run AND w.request = r.request
LEFT JOIN served AS s ON s.run = r.run AND s.request = r.request
