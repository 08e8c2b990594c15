-- SPDX-License-Identifier: MIT OR Apache-2.0
-- In which processes has the number of open files only grown, in two hours or more, and by more than 100?
-- Only rows with `full` are taken. They come every ten minutes, so a short rise and fall in between does not count.
with steps as (
  select host, pid, start_ticks, comm, unit, fds,
    max(fds) over (
      partition by host, pid, start_ticks order by ts_s rows between 1 preceding and current row) as higher
  from processes
  where change = 'full' and fds is not null
)
select host, pid, start_ticks, max(comm) as program, max(unit) as of_unit, min(fds) as first_fds, max(fds) as last_fds
from steps
group by host, pid, start_ticks
having count(*) >= 12 and max(fds) - min(fds) > 100 and sum(case when higher > fds then 1 else 0 end) = 0
order by host, pid, start_ticks
