-- definition: real-time factor from first audio: (last - first arrival of a chunk with samples) / audio seconds. 0
--   for sound in one chunk. Not the ratio from arrival: that is jct_per_audio_s.
-- unit: seconds per second
-- denominator: requests that got sound, however they ended
-- source: RTF as proposed in vLLM-Omni RFC 3545
SELECT c.run, c.request, (max(c.received_ns) - min(c.received_ns)) / 1e9 / any_value(a.audio_s) AS rtf
FROM output_chunk AS c
JOIN audio AS a ON a.run = c.run AND a.request = c.request
WHERE c.has_audio AND a.audio_s > 0
GROUP BY c.run, c.request
