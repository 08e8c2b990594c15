-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Which services were restarted since :begin, how often, and on how many hosts?
-- The main process of a service is a child of systemd. Each such process that began in that time counts.
select unit, count(*) as restarts, count(distinct host) as hosts
from (
  select distinct host, unit, pid, start_ticks
  from processes
  where ppid = 1 and unit like '%.service' and start_s >= :begin
) as begun
group by unit
order by restarts desc, unit
