-- definition: sound that reached the client. samples per channel; audio_s adds samples / sample_rate.
-- unit: samples; seconds
-- denominator: requests that got a media chunk; NULL where a chunk's samples or rate are not known
-- source: chunk contract
WITH media AS (
    SELECT run, request, sample_rate, sum(samples) AS samples,
           count(*) = count(samples) AND count(*) = count(sample_rate) AS is_known
    FROM output_chunk
    WHERE samples IS NOT NULL OR modality = 'audio'
    GROUP BY run, request, sample_rate
)
SELECT run, request,
       CASE WHEN bool_and(is_known) THEN fsum(samples / nullif(sample_rate, 0)) END AS audio_s,
       CASE WHEN bool_and(is_known) THEN sum(samples)::BIGINT END AS samples
FROM media
GROUP BY run, request
