-- SPDX-License-Identifier: MIT OR Apache-2.0
-- The tables for DataFusion, from the files of `taskdiag convert` below :lake. Leave out tables
-- without files. Moments are read without a time zone, because extract() would take them for local
-- time. Durations come from the Arrow schema in the files. Files are chosen by the beginning of
-- their names.
create external table lake_processes stored as parquet partitioned by (date, hour, host) location ':lake/processes*.parquet';

create view processes as
select ts, change, pid, start_ticks, start, ppid, "user", s, nlwp, ni, usertime, systime, majflt, rss, vsz, swap,
  read_bytes, write_bytes, nvcsw, nivcsw, fds, oom_score_adj, slice, unit, container, comm, exe,
  cast(date as varchar) as date, cast(hour as bigint) as hour, cast(host as varchar) as host,
  cast(date_part('epoch', ts) as bigint) as ts_s, cast(date_part('epoch', start) as bigint) as start_s,
  coalesce(cast(usertime as bigint), 0) + coalesce(cast(systime as bigint), 0) as cpu_ns
from lake_processes;

create external table lake_sockets stored as parquet partitioned by (date, hour, host) location ':lake/sockets*.parquet';

create view sockets as
select ts, change, pid, start_ticks, fdnum, comm, "user", unit, container, family, protocol, sockstate, laddr, lport, raddr,
  rport, path, sock_netns, inode,
  cast(date as varchar) as date, cast(hour as bigint) as hour, cast(host as varchar) as host,
  cast(date_part('epoch', ts) as bigint) as ts_s
from lake_sockets;

create external table lake_mapped_files stored as parquet partitioned by (date, hour, host)
location ':lake/mapped_files*.parquet';

create view mapped_files as
select ts, change, pid, start_ticks, device, inode, path, comm, "user", unit, container, deleted,
  cast(date as varchar) as date, cast(hour as bigint) as hour, cast(host as varchar) as host,
  cast(date_part('epoch', ts) as bigint) as ts_s
from lake_mapped_files;
