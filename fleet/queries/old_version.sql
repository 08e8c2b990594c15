-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Which hosts ran another version than :version of the program :program in the hour :hour of :date?
-- The version is in the path of the program: /opt/NAME/VERSION/... These files have it nowhere
-- else.
select host, exe, count(distinct pid) as processes_old
from processes
where date = ':date' and hour = :hour and change = 'full'
  and exe like ':program/%' and exe not like ':program/:version/%'
group by host, exe
order by host, exe
