-- fact: stream_fault
-- holds: chunks that do not continue their stream
SELECT c.run, c.span, c.seq, c.emitted_ns, c.sample_start, c.sample_rate, c.frame_start, c.state_generation,
       p.emitted_ns AS before_emitted_ns, p.sample_rate AS before_rate, p.state_generation AS before_generation,
       CASE WHEN c.seq = 0 THEN 0 ELSE p.sample_start + p.samples END AS before_sample_end,
       CASE WHEN c.seq = 0 THEN 0 ELSE p.frame_start + p.frames END AS before_frame_end,
       p.span IS NULL AND c.seq <> 0 AS is_gap,
       coalesce(c.emitted_ns < p.emitted_ns, false) AS is_disordered,
       coalesce(c.sample_start <> before_sample_end, false) AS is_sample_gap,
       coalesce(c.sample_rate <> p.sample_rate OR c.sample_rate <= 0, false) AS is_rate_change,
       coalesce(c.frame_start <> before_frame_end, false) AS is_frame_gap,
       coalesce(c.state_generation <> p.state_generation, false) AS is_generation_change,
       coalesce(p.final, false) AS is_after_final
FROM chunk AS c
LEFT JOIN chunk AS p
       ON p.run = c.run AND p.edge = c.edge AND p.request = c.request AND p.epoch = c.epoch AND p.seq = c.seq - 1
WHERE is_gap OR is_disordered OR is_sample_gap OR is_rate_change OR is_frame_gap OR is_generation_change
   OR is_after_final

-- rule: sequence-gap
-- severity: error
-- holds: the chunks of a stream are numbered 0, 1, 2, ...
SELECT t.run, 'chunk' AS table_name, 'chunk ' || t.span AS key, 'seq ' || t.seq || ' without ' || (t.seq - 1) AS value
FROM stream_fault AS t
WHERE t.is_gap

-- rule: sequence-repeat
-- severity: error
-- holds: a stream has at most one chunk of each number
SELECT run, 'chunk' AS table_name, 'chunk ' || max(span) AS key, 'seq ' || seq || ' ' || count(*) || ' times' AS value
FROM chunk
GROUP BY run, edge, request, epoch, seq
HAVING count(*) > 1

-- rule: sequence-order
-- severity: error
-- holds: the chunks of a stream are emitted in the order of their numbers
SELECT t.run, 'chunk' AS table_name, 'chunk ' || t.span AS key,
       (t.emitted_ns - t.before_emitted_ns) || ' ns' AS value
FROM stream_fault AS t
WHERE t.is_disordered

-- rule: chunk-after-final
-- severity: error
-- holds: a stream has one final chunk, its last
SELECT t.run, 'chunk' AS table_name, 'chunk ' || t.span AS key,
       'seq ' || t.seq AS value
FROM stream_fault AS t
WHERE t.is_after_final

-- rule: sample-gap
-- severity: error
-- holds: the samples of a stream start at 0 and follow one another without gap or overlap
SELECT t.run, 'chunk' AS table_name, 'chunk ' || t.span AS key,
       'starts at ' || t.sample_start || ' instead of ' || coalesce(t.before_sample_end, 0) AS value
FROM stream_fault AS t
WHERE t.is_sample_gap

-- rule: sample-rate-change
-- severity: error
-- holds: a stream has one positive sample rate
SELECT t.run, 'chunk' AS table_name, 'chunk ' || t.span AS key,
       concat_ws(' then ', t.before_rate, t.sample_rate) AS value
FROM stream_fault AS t
WHERE t.is_rate_change

-- rule: frame-gap
-- severity: error
-- holds: the codec frames of a stream start at 0 and follow one another without gap or overlap
SELECT t.run, 'chunk' AS table_name, 'chunk ' || t.span AS key,
       'starts at ' || t.frame_start || ' instead of ' || coalesce(t.before_frame_end, 0) AS value
FROM stream_fault AS t
WHERE t.is_frame_gap

-- rule: state-generation-change
-- severity: error
-- holds: one generation of decoder state makes all chunks of a stream
SELECT t.run, 'chunk' AS table_name, 'chunk ' || t.span AS key,
       t.before_generation || ' then ' || t.state_generation AS value
FROM stream_fault AS t
WHERE t.is_generation_change
