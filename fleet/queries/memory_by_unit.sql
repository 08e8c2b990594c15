-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Which units use the most memory over the fleet, each at the time when it uses the most?
-- Only rows with `full` are taken, and one of each process in ten minutes, since a restart of the recorder adds a full frame.
with per_process as (
  select host, unit, pid, start_ticks, ts_s - ts_s % 600 as ten_minutes, max(rss) as process_bytes
  from processes
  where change = 'full' and unit is not null
  group by host, unit, pid, start_ticks, ts_s - ts_s % 600
),
fleet as (
  select unit, ten_minutes, sum(process_bytes) as fleet_bytes, count(*) as processes_then,
    count(distinct host) as hosts_then
  from per_process
  group by unit, ten_minutes
)
select unit, max(fleet_bytes) as most_bytes, max(processes_then) as most_processes, max(hosts_then) as most_hosts
from fleet
group by unit
order by most_bytes desc, unit
limit 20
