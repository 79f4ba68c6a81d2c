-- definition: job completion time over the mean completion time of the same content in the run's isolated run, in
--   which requests ran one at a time. 1 = undisturbed.
-- unit: ratio
-- denominator: requests with status ok whose content key occurs, with status ok, in run.isolated_run
-- source: agenda G7, slowdown = T_shared / T_alone
WITH alone AS (
    SELECT r.run, r.content, sum(j.jct_ns) AS sum_ns, count(*) AS requests
    FROM request AS r
    JOIN jct AS j ON j.run = r.run AND j.request = r.request
    WHERE r.content IS NOT NULL
    GROUP BY r.run, r.content
)
SELECT j.run, j.request, j.jct_ns * a.requests / a.sum_ns AS slowdown
FROM jct AS j
JOIN request AS r ON r.run = j.run AND r.request = j.request
JOIN run AS u ON u.run = j.run
JOIN alone AS a ON a.run::VARCHAR = u.isolated_run AND a.content = r.content
WHERE a.sum_ns > 0
