-- fact: stream_fault
-- holds: chunks that do not continue their stream
WITH stream_chunk AS (
    SELECT *, coalesce(lag(seq) OVER stream + 1, 0) AS expected_seq,
           lag(seq) OVER stream IS NULL AS is_first,
           lag(emitted_ns) OVER stream AS before_emitted_ns,
           lag(sample_start) OVER stream + lag(samples) OVER stream AS before_sample_end,
           lag(sample_rate) OVER stream AS before_rate,
           lag(frame_start) OVER stream + lag(frames) OVER stream AS before_frame_end,
           lag(state_generation) OVER stream AS before_generation,
           lag("final") OVER stream AS before_final
    FROM chunk
    WINDOW stream AS (PARTITION BY run, edge, request, epoch ORDER BY seq, span)
)
SELECT run, span, seq, expected_seq, emitted_ns, before_emitted_ns, sample_start, before_sample_end, sample_rate,
       before_rate, frame_start, before_frame_end, state_generation, before_generation,
       seq <> expected_seq AS is_gap,
       coalesce(emitted_ns < before_emitted_ns, false) AS is_disordered,
       coalesce(sample_start <> CASE WHEN is_first THEN 0 ELSE before_sample_end END, false)
           AS is_sample_gap,
       coalesce(sample_rate <> before_rate OR sample_rate <= 0, false) AS is_rate_change,
       coalesce(frame_start <> CASE WHEN is_first THEN 0 ELSE before_frame_end END, false) AS is_frame_gap,
       coalesce(state_generation <> before_generation, false) AS is_generation_change,
       coalesce(before_final, false) AS is_after_final
FROM stream_chunk
WHERE is_gap OR is_disordered OR is_sample_gap OR is_rate_change OR is_frame_gap OR is_generation_change
   OR is_after_final

-- rule: sequence-gap
-- severity: error
-- holds: the chunks of a stream are numbered 0, 1, 2, ...
SELECT t.run, 'chunk' AS table_name, 'chunk ' || t.span AS key,
       'seq ' || t.seq || ' instead of ' || t.expected_seq AS value
FROM stream_fault AS t
WHERE t.is_gap

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
