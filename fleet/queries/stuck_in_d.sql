-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Which processes were in uninterruptible sleep (D) for over a minute, from when, and for how long?
-- A row is valid until the next row of its process, so D lasts from its first row to the next row with another state.
with suspects as (
  select distinct host, pid, start_ticks from processes where s = 'D'
),
steps as (
  select p.host, p.pid, p.start_ticks, p.comm, p.unit, p.s, p.ts_s,
    sum(case when p.s = 'D' then 0 else 1 end) over (
      partition by p.host, p.pid, p.start_ticks order by p.ts_s
      rows between unbounded preceding and current row) as awakenings,
    max(p.ts_s) over (
      partition by p.host, p.pid, p.start_ticks order by p.ts_s
      rows between current row and 1 following) as until_s
  from processes p
  join suspects q on p.host = q.host and p.pid = q.pid and p.start_ticks = q.start_ticks
)
select host, pid, start_ticks, max(comm) as program, max(unit) as of_unit, min(ts_s) as from_s,
  max(until_s) - min(ts_s) as seconds
from steps
where s = 'D'
group by host, pid, start_ticks, awakenings
having max(until_s) - min(ts_s) > 60
order by host, pid, start_ticks, from_s
