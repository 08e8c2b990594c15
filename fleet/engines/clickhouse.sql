-- SPDX-License-Identifier: MIT OR Apache-2.0
-- The tables for ClickHouse (here its library chdb), from the files of `taskdiag convert` below
-- :lake. Leave out tables without files.
set use_hive_partitioning = 1;

create view processes as
select * except (date, hour, host), toString(date) as date, toInt64(hour) as hour, toString(host) as host,
  toInt64(toUnixTimestamp(ts)) as ts_s, toInt64(toUnixTimestamp(start)) as start_s,
  toInt64(coalesce(usertime, 0)) + toInt64(coalesce(systime, 0)) as cpu_ns
from file(':lake/date=*/hour=*/host=*/processes*.parquet', Parquet);

create view sockets as
select * except (date, hour, host), toString(date) as date, toInt64(hour) as hour, toString(host) as host,
  toInt64(toUnixTimestamp(ts)) as ts_s
from file(':lake/date=*/hour=*/host=*/sockets*.parquet', Parquet);

create view mapped_files as
select * except (date, hour, host), toString(date) as date, toInt64(hour) as hour, toString(host) as host,
  toInt64(toUnixTimestamp(ts)) as ts_s
from file(':lake/date=*/hour=*/host=*/mapped_files*.parquet', Parquet);
