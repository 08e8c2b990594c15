-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Programs that ran on :date for the first time, and the number of hosts. A condition on `date`
-- would limit that, for example to a week.
select exe, count(distinct host) as hosts, min(ts_s) as first_s
from processes
where exe is not null
group by exe
having min(date) >= ':date'
order by exe
