-- definition: hand-overs of a request on an edge: time from sent to received, added over chunks that arrived (chunks
--   may be under way at once), and what was sent.
-- unit: ns; bytes, NULL where the size of any chunk is not known; chunks and received count rows
-- denominator: (request, edge) pairs with a chunk, over all attempts, discarded chunks included
-- source: trace contract, table chunk
SELECT run, request, edge,
       sum(received_ns - sent_ns)::BIGINT AS transfer_ns,
       CASE WHEN count(bytes) = count(*) THEN sum(bytes)::BIGINT END AS bytes,
       count(*) AS chunks,
       count(received_ns) AS received
FROM chunk
GROUP BY run, request, edge
