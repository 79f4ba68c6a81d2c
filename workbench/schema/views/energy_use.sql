-- definition: energy between the first and the last reading of a counter. Modeled energy has its own column and never
--   fills the measured one. Counters move every 10 to 100 ms, so that fewer than 10 updates are no measurement.
-- unit: mJ; ns; updates counts different counter values
-- denominator: one row per run and counter, and one for a run without any; NULL with the reason
-- source: counter rules of the energy section of the statistics contract
WITH reading AS (
    SELECT run, source, device, before_ns, after_ns, counter_mj, modeled_mj,
           counter_mj < lag(counter_mj IGNORE NULLS) OVER counter AS is_wrapped
    FROM energy
    WINDOW counter AS (PARTITION BY run, source, device ORDER BY before_ns)
),
total AS (
    SELECT run, source, device, min(before_ns) AS from_ns, max(after_ns) AS to_ns, count(counter_mj) AS readings,
           count(DISTINCT counter_mj) AS updates, coalesce(bool_or(is_wrapped), false) AS is_wrapped,
           max(counter_mj) - min(counter_mj) AS energy_mj, max(modeled_mj) - min(modeled_mj) AS modeled_mj
    FROM reading
    GROUP BY run, source, device
),
judged AS (
    SELECT *, CASE WHEN source = 'model' THEN 'modeled, not measured'
                   WHEN readings = 0 THEN 'the counter was not readable'
                   WHEN is_wrapped THEN 'the counter ran backwards or wrapped'
                   WHEN updates < 10 THEN 'fewer than 10 counter updates'
              END AS reason
    FROM total
)
SELECT u.run, j.source, j.device, CASE WHEN j.reason IS NULL THEN j.energy_mj END AS energy_mj, j.modeled_mj,
       j.from_ns, j.to_ns, j.updates,
       CASE WHEN j.run IS NULL THEN 'no energy counter was recorded' ELSE j.reason END AS reason
FROM run AS u
LEFT JOIN judged AS j ON j.run = u.run
