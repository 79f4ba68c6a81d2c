-- definition: what a cancelled request still cost: service after the cancel (a launch in full for each member),
--   services that began after it, and bytes held at the moment of the cancel by its state objects and by its chunks
--   in flight.
-- unit: ns; counts; bytes, NULL where a size is not known or the run records no objects; all NULL when probes were
--   off
-- denominator: requests with a cancel
-- source: agenda G2, no unseen computation after cancel
WITH cancelled AS (
    SELECT o.run, o.request, o.cancel_ns, u.probes = 'on' AS is_probed
    FROM outcome AS o
    JOIN run AS u ON u.run = o.run
    WHERE o.cancel_ns IS NOT NULL
),
work AS (
    SELECT c.run, c.request,
           sum(greatest(s.end_ns - greatest(s.start_ns, c.cancel_ns), 0))::BIGINT AS service_ns,
           count(*) FILTER (s.start_ns > c.cancel_ns) AS started
    FROM cancelled AS c
    JOIN span AS s ON s.run = c.run AND s.request = c.request
    WHERE s.kind IN ('service', 'preprocess')
    GROUP BY c.run, c.request
),
object_state AS (
    SELECT c.run, c.request, b.object, b.event, b.bytes
    FROM cancelled AS c
    JOIN object AS b ON b.run = c.run AND b.request = c.request
    WHERE b.at_ns <= c.cancel_ns
    QUALIFY row_number() OVER (PARTITION BY c.run, b.object ORDER BY b.at_ns DESC, b.event DESC) = 1
),
object_held AS (
    SELECT run, request, CASE WHEN count(bytes) = count(*) THEN sum(bytes)::BIGINT END AS bytes
    FROM object_state
    WHERE event <> 'release'
    GROUP BY run, request
),
chunk_held AS (
    SELECT c.run, c.request, CASE WHEN count(k.bytes) = count(*) THEN sum(k.bytes)::BIGINT END AS bytes
    FROM cancelled AS c
    JOIN chunk AS k ON k.run = c.run AND k.request = c.request
    WHERE k.emitted_ns <= c.cancel_ns AND coalesce(k.taken_ns > c.cancel_ns, true)
    GROUP BY c.run, c.request
)
SELECT c.run, c.request,
       CASE WHEN c.is_probed THEN coalesce(w.service_ns, 0) END AS service_ns,
       CASE WHEN c.is_probed THEN coalesce(w.started, 0) END AS started,
       CASE WHEN c.is_probed AND c.run IN (SELECT DISTINCT run FROM object)
            THEN CASE WHEN b.run IS NULL THEN 0 ELSE b.bytes END
       END AS object_bytes,
       CASE WHEN c.is_probed THEN CASE WHEN k.run IS NULL THEN 0 ELSE k.bytes END END AS chunk_bytes
FROM cancelled AS c
LEFT JOIN work AS w ON w.run = c.run AND w.request = c.request
LEFT JOIN object_held AS b ON b.run = c.run AND b.request = c.request
LEFT JOIN chunk_held AS k ON k.run = c.run AND k.request = c.request
