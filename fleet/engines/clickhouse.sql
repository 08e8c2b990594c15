-- SPDX-License-Identifier: MIT OR Apache-2.0
-- The table `processes` for ClickHouse (here its library chdb), from the files of `taskdiag convert` below :lake.
set use_hive_partitioning = 1;

create view processes as
select * except (date, hour, host), toString(date) as date, toInt64(hour) as hour, toString(host) as host,
  toInt64(toUnixTimestamp(ts)) as ts_s, toInt64(toUnixTimestamp(start)) as start_s,
  toInt64(coalesce(usertime, 0)) + toInt64(coalesce(systime, 0)) as cpu_ns
from file(':lake/date=*/hour=*/host=*/processes*.parquet', Parquet);
