-- SPDX-License-Identifier: MIT OR Apache-2.0
-- The tables for Ballista, from the files of `taskdiag convert`. Leave out tables without files.
-- Below :lake, each table has its own directory, because the client does not pass a pattern of
-- names to the scheduler: a table with `*` in its location would have the files of all tables. All
-- machines of the cluster must see the files at the same path. Texts are read as plain ones,
-- because a stage that gets a dictionary from another one may fail for it. The plan is not changed
-- while a query runs: with this setting on, a query had no end after an executor was killed at 30 %
-- of its time. docs/operate/fleet.md has what happens without it.
set ballista.planner.adaptive.enabled = false;

create external table lake_processes stored as parquet partitioned by (date, hour, host) location ':lake/processes/';

create view processes as
select
  ts, cast(change as varchar) as change, pid, start_ticks, start, ppid, cast("user" as varchar) as "user",
  cast(s as varchar) as s, nlwp, ni, usertime, systime, majflt, rss, vsz, swap, read_bytes, write_bytes, nvcsw,
  nivcsw, fds, oom_score_adj, cast(slice as varchar) as slice, cast(unit as varchar) as unit,
  cast(container as varchar) as container, cast(comm as varchar) as comm, cast(exe as varchar) as exe,
  cast(date as varchar) as date, cast(hour as bigint) as hour, cast(host as varchar) as host,
  cast(date_part('epoch', ts) as bigint) as ts_s, cast(date_part('epoch', start) as bigint) as start_s,
  coalesce(cast(usertime as bigint), 0) + coalesce(cast(systime as bigint), 0) as cpu_ns
from lake_processes;

create external table lake_sockets stored as parquet partitioned by (date, hour, host) location ':lake/sockets/';

create view sockets as
select
  ts, cast(change as varchar) as change, pid, start_ticks, fdnum, cast(comm as varchar) as comm,
  cast("user" as varchar) as "user", cast(unit as varchar) as unit, cast(container as varchar) as container,
  cast(family as varchar) as family, cast(protocol as varchar) as protocol, cast(sockstate as varchar) as sockstate,
  cast(laddr as varchar) as laddr, lport, cast(raddr as varchar) as raddr, rport, cast(path as varchar) as path,
  sock_netns, inode,
  cast(date as varchar) as date, cast(hour as bigint) as hour, cast(host as varchar) as host,
  cast(date_part('epoch', ts) as bigint) as ts_s
from lake_sockets;

create external table lake_mapped_files stored as parquet partitioned by (date, hour, host)
location ':lake/mapped_files/';

create view mapped_files as
select
  ts, cast(change as varchar) as change, pid, start_ticks, device, inode, cast(path as varchar) as path,
  cast(comm as varchar) as comm, cast("user" as varchar) as "user", cast(unit as varchar) as unit,
  cast(container as varchar) as container, deleted,
  cast(date as varchar) as date, cast(hour as bigint) as hour, cast(host as varchar) as host,
  cast(date_part('epoch', ts) as bigint) as ts_s
from lake_mapped_files;
