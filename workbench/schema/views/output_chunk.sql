-- definition: chunks that a client took over, in any epoch. consumable: it carries sound, or, on an edge that is not
--   audio, units; a chunk of a codec prefix without samples is neither. duration_ns: playing time of its samples.
-- unit: ns
-- denominator: chunks received and taken on edges whose target has role client
-- source: agenda, term TTFO; chunk contract
SELECT c.run, c.request, c.epoch, c.edge, e.modality, c.seq, c.span, c.received_ns, c.units, c.samples, c.sample_rate,
       c.samples::BIGINT * 1000000000 // c.sample_rate AS duration_ns,
       coalesce(c.samples > 0, false) AS has_audio,
       coalesce(c.samples > 0, false) OR (e.modality <> 'audio' AND coalesce(c.units > 0, false)) AS consumable,
       c.final
FROM chunk AS c
JOIN edge AS e ON e.run = c.run AND e.edge = c.edge
JOIN stage AS t ON t.run = e.run AND t.stage = e.target
WHERE t.role = 'client' AND c.received_ns IS NOT NULL AND c.taken_ns IS NOT NULL
