-- SPDX-License-Identifier: MIT OR Apache-2.0
-- What ran on the host :host at the second :at (since 1970), which is in the hour :hour of :date?
-- The newest row of each process since the last full frame shows that.
with before as (
  select pid, start_ticks, ppid, unit, comm, rss, change, ts_s
  from processes
  where host = ':host' and date = ':date' and hour = :hour and ts_s <= :at
),
newest as (
  select pid, start_ticks, ppid, unit, comm, rss, change,
    row_number() over (partition by pid, start_ticks order by ts_s desc) as place
  from before
  where ts_s >= (select max(ts_s) from before where change = 'full')
)
select pid, start_ticks, ppid, unit, comm, rss
from newest
where place = 1 and change <> 'ended'
order by pid, start_ticks
