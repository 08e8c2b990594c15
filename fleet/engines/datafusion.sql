-- SPDX-License-Identifier: MIT OR Apache-2.0
-- The table `processes` for DataFusion, from the files of `taskdiag convert` below :lake. Moments are read without a time
-- zone, because extract() would take them for local time. Durations come from the Arrow schema in the files.
create external table lake stored as parquet partitioned by (date, hour, host) location ':lake/';

create view processes as
select ts, change, pid, start_ticks, start, ppid, "user", s, nlwp, ni, usertime, systime, majflt, rss, vsz, swap,
  read_bytes, write_bytes, nvcsw, nivcsw, fds, oom_score_adj, slice, unit, container, comm, exe,
  cast(date as varchar) as date, cast(hour as bigint) as hour, cast(host as varchar) as host,
  cast(date_part('epoch', ts) as bigint) as ts_s, cast(date_part('epoch', start) as bigint) as start_s,
  coalesce(cast(usertime as bigint), 0) + coalesce(cast(systime as bigint), 0) as cpu_ns
from lake;
