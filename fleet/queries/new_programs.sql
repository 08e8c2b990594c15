-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Which programs ran on :date for the first time, and on how many hosts?
-- "First" is as far back as there are files. A condition on `date` would limit that, for example to a week.
select exe, count(distinct host) as hosts, min(ts_s) as first_s
from processes
where exe is not null
group by exe
having min(date) >= ':date'
order by exe
