-- definition: job completion time over audio seconds: the real-time factor as seen from the scheduled arrival.
-- unit: seconds per second
-- denominator: requests with status ok that got sound
-- source: agenda, term RTF
SELECT j.run, j.request, j.jct_ns / 1e9 / a.audio_s AS jct_per_audio_s
FROM jct AS j
JOIN audio AS a ON a.run = j.run AND a.request = j.request
WHERE a.audio_s > 0
