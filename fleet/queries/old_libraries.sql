-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Which hosts had processes in the hour :hour of :date that still used an old :library, and how many?
-- A file that was replaced or deleted stays mapped by the processes that began before. Those have to be restarted.
select host, path, count(*) as processes_old, min(from_s) as first_s
from (
  select host, path, pid, start_ticks, min(ts_s) as from_s
  from mapped_files
  where date = ':date' and hour = :hour and change <> 'ended' and deleted and path like '%/:library%'
  group by host, path, pid, start_ticks
) as old
group by host, path
order by host, path
