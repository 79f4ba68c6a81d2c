-- definition: how full launches were: fill = members / slots, both added over the launches whose limit is known.
-- unit: ratio; launches, members and slots count
-- denominator: stages with rows in table batch; fill NULL where no launch states a limit
-- source: agenda G3, batch fill
SELECT run, stage, count(*) AS launches, sum(members)::BIGINT AS members,
       sum(members) / count(*) AS members_per_launch,
       count("limit") AS limited_launches,
       sum("limit")::BIGINT AS slots,
       sum(members) FILTER ("limit" IS NOT NULL) / nullif(sum("limit"), 0) AS fill
FROM batch
GROUP BY run, stage
