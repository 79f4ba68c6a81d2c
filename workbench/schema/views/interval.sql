-- definition: every interval of a run under one id space: span rows as they are, and each chunk as a transfer
--   (deliver, when the edge ends at a client) from sent_ns to received_ns. A chunk's stage is the one that sent it,
--   its cause the service that made it; edge is NULL for spans; end_ns is NULL for a chunk that never arrived.
-- unit: ns on the run's reference clock
-- denominator: all rows of span and chunk
-- source: trace contract, table chunk
SELECT run, span, request, stage, replica, epoch, chunk, kind, start_ns, end_ns, cause, cause_span, batch, bytes, units,
       NULL::edge_name AS edge
FROM span
UNION ALL
SELECT c.run, c.span, c.request, e.source, NULL::SMALLINT, c.epoch, c.seq,
       CASE WHEN t.role = 'client' THEN 'deliver' ELSE 'transfer' END::span_kind, c.sent_ns, c.received_ns,
       'data'::cause, c.producer_span, NULL::BIGINT, c.bytes, c.units, c.edge
FROM chunk AS c
LEFT JOIN edge AS e ON e.run = c.run AND e.edge = c.edge
LEFT JOIN stage AS t ON t.run = e.run AND t.stage = e.target
