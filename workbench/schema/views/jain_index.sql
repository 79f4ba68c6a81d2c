-- definition: Jain's fairness index (sum x)^2 / (n sum x^2) over tenants; x is goodput per weight (measure goodput)
--   or mean 1 / slowdown (measure inverse_slowdown). 1 = equal shares, 1/n = one tenant has all.
-- unit: ratio; tenants counts n
-- denominator: all tenants with a scheduled request; NULL when any tenant's x is not known, or all are 0
-- source: Jain, Chiu and Hawe 1984; agenda G7
WITH share AS (
    SELECT t.run, m.measure, m.x
    FROM tenant_share AS t,
         LATERAL (VALUES ('goodput', weighted_goodput_per_s), ('inverse_slowdown', inverse_slowdown)) AS m (measure, x)
)
SELECT run, measure, count(*) AS tenants,
       CASE WHEN count(x) = count(*) THEN pow(fsum(x), 2) / nullif(count(*) * fsum(x * x), 0) END AS jain_index
FROM share
GROUP BY run, measure
