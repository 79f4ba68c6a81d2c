-- definition: slack of a branch at a join: arrival of the last branch minus arrival of this one, over all tasks that
--   needed chunks of several branches (edges, or companion requests). 0 for the branch that came last. It is not time
--   on the critical path.
-- unit: ns; joins counts tasks
-- denominator: branches of tasks that joined at least two, from chunks with a known consumer
-- source: agenda G1, join wait
WITH branch AS (
    SELECT s.run, s.request, s.stage, c.edge, c.request AS branch_request, s.span, max(c.received_ns) AS ready_ns
    FROM chunk AS c
    JOIN span AS s ON s.run = c.run AND s.span = c.consumer_span
    WHERE c.received_ns IS NOT NULL
    GROUP BY s.run, s.request, s.stage, c.edge, c.request, s.span
),
joined AS (
    SELECT run, request, stage, edge, branch_request,
           max(ready_ns) OVER task - ready_ns AS wait_ns,
           count(*) OVER task AS branches
    FROM branch
    WINDOW task AS (PARTITION BY run, span)
)
SELECT run, request, stage, edge, branch_request, sum(wait_ns)::BIGINT AS join_wait_ns, count(*) AS joins
FROM joined
WHERE branches > 1
GROUP BY run, request, stage, edge, branch_request
