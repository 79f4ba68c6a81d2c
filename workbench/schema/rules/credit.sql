-- fact: credit_fact
-- holds: credit events of one owner with cumulative takes, returns and limits
SELECT run, edge, request, epoch, event, seq, at_ns, rowid AS number,
       lag(seq) OVER owner AS before_seq,
       sum(chunks) FILTER (event = 'take') OVER owner AS taken,
       coalesce(sum(chunks) FILTER (event IN ('return', 'discard')) OVER owner, 0) AS returned,
       max(chunks) FILTER (event IN ('grant', 'refresh')) OVER owner AS limit_chunks,
       first_value(chunks IGNORE NULLS) OVER owner AS first_chunks,
       first_value(event) OVER owner AS first_event
FROM credit
WINDOW owner AS (PARTITION BY run, edge, request, epoch ORDER BY seq, rowid)

-- rule: credit-sequence
-- severity: error
-- holds: credit events of one owner are numbered in order, each number once
SELECT run, 'credit' AS table_name,
       edge || coalesce(' request ' || request, '') || ' epoch ' || epoch || ' seq ' || seq AS key,
       'seq ' || seq || ' after ' || before_seq AS value
FROM credit_fact
WHERE seq <= before_seq

-- rule: credit-over-limit
-- severity: error
-- holds: chunks taken stay within the absolute limit, or within the first grant plus what came back
SELECT run, 'credit' AS table_name,
       edge || coalesce(' request ' || request, '') || ' epoch ' || epoch || ' seq ' || seq AS key,
       'taken ' || taken || ', limit ' || limit_chunks || ', returned ' || returned AS value
FROM credit_fact
WHERE event = 'take' AND taken > greatest(
    limit_chunks, CASE WHEN first_event = 'grant' THEN first_chunks + returned END
)

-- rule: credit-returned-twice
-- severity: error
-- holds: no more chunks are returned or discarded than were taken
SELECT run, 'credit' AS table_name,
       edge || coalesce(' request ' || request, '') || ' epoch ' || epoch || ' seq ' || seq AS key,
       'returned ' || returned || ' of ' || coalesce(taken, 0) || ' taken' AS value
FROM credit_fact
WHERE event IN ('return', 'discard') AND returned > coalesce(taken, 0)
