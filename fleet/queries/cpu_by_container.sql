-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Which containers have used the most CPU time since :begin?
-- The CPU time of a process only grows. The time that a process had used before :begin is
-- subtracted.
with used as (
  select host, container, pid, start_ticks,
    max(cpu_ns) - case when max(start_s) >= :begin then 0 else min(cpu_ns) end as process_ns
  from processes
  where container is not null
  group by host, container, pid, start_ticks
)
select container, count(distinct host) as hosts, count(*) as processes_all, sum(process_ns) as container_ns
from used
group by container
order by container_ns desc, container
limit 20
