-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Who listened on the TCP port :port at the second :at (since 1970), which is in the hour :hour of :date?
-- The newest row of each descriptor since the last full frame of its host shows that. The condition
-- on the port comes last, because a descriptor may be another socket in a newer row.
with before as (
  select host, pid, start_ticks, fdnum, comm, "user", unit, laddr, lport, protocol, sockstate, change, ts_s
  from sockets
  where date = ':date' and hour = :hour and ts_s <= :at
),
last_full as (
  select host, max(ts_s) as full_s from before where change = 'full' group by host
),
newest as (
  select b.host, b.pid, b.start_ticks, b.fdnum, b.comm, b."user", b.unit, b.laddr, b.lport, b.protocol, b.sockstate, b.change,
    row_number() over (partition by b.host, b.pid, b.start_ticks, b.fdnum order by b.ts_s desc) as place
  from before b
  join last_full f on b.host = f.host
  where b.ts_s >= f.full_s
)
select host, pid, start_ticks, fdnum, comm, "user", unit, laddr
from newest
where place = 1 and change <> 'ended' and sockstate = 'LISTEN' and protocol = 'TCP' and lport = :port
order by host, pid, start_ticks, fdnum
