-- SPDX-License-Identifier: MIT OR Apache-2.0
-- The tables for Ballista, from the files of `taskdiag convert`. Leave out those of which there are no files.
-- Below :lake, each table has a directory of its own, because the client does not tell the scheduler a pattern of names: a table
-- with `*` in its location would have the files of all tables. All machines of the cluster must see the files at the same path.
create external table lake_processes stored as parquet partitioned by (date, hour, host) location ':lake/processes/';

create view processes as
select ts, change, pid, start_ticks, start, ppid, "user", s, nlwp, ni, usertime, systime, majflt, rss, vsz, swap,
  read_bytes, write_bytes, nvcsw, nivcsw, fds, oom_score_adj, slice, unit, container, comm, exe,
  cast(date as varchar) as date, cast(hour as bigint) as hour, cast(host as varchar) as host,
  cast(date_part('epoch', ts) as bigint) as ts_s, cast(date_part('epoch', start) as bigint) as start_s,
  coalesce(cast(usertime as bigint), 0) + coalesce(cast(systime as bigint), 0) as cpu_ns
from lake_processes;

create external table lake_sockets stored as parquet partitioned by (date, hour, host) location ':lake/sockets/';

create view sockets as
select ts, change, pid, start_ticks, fdnum, comm, "user", unit, container, family, protocol, sockstate, laddr, lport, raddr,
  rport, path, sock_netns, inode,
  cast(date as varchar) as date, cast(hour as bigint) as hour, cast(host as varchar) as host,
  cast(date_part('epoch', ts) as bigint) as ts_s
from lake_sockets;

create external table lake_mapped_files stored as parquet partitioned by (date, hour, host)
location ':lake/mapped_files/';

create view mapped_files as
select ts, change, pid, start_ticks, device, inode, path, comm, "user", unit, container, deleted,
  cast(date as varchar) as date, cast(hour as bigint) as hour, cast(host as varchar) as host,
  cast(date_part('epoch', ts) as bigint) as ts_s
from lake_mapped_files;
