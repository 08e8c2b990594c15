-- SPDX-License-Identifier: MIT OR Apache-2.0
-- The tables for DuckDB, from the files of `taskdiag convert` below :lake. Leave out tables without
-- files.
create view processes as
select *, cast(floor(epoch(ts)) as bigint) as ts_s, cast(floor(epoch(start)) as bigint) as start_s,
  coalesce(usertime, 0) + coalesce(systime, 0) as cpu_ns
from read_parquet(':lake/date=*/hour=*/host=*/processes*.parquet',
  union_by_name = true, hive_types = {'date': varchar, 'hour': bigint, 'host': varchar});

create view sockets as
select *, cast(floor(epoch(ts)) as bigint) as ts_s
from read_parquet(':lake/date=*/hour=*/host=*/sockets*.parquet',
  union_by_name = true, hive_types = {'date': varchar, 'hour': bigint, 'host': varchar});

create view mapped_files as
select *, cast(floor(epoch(ts)) as bigint) as ts_s
from read_parquet(':lake/date=*/hour=*/host=*/mapped_files*.parquet',
  union_by_name = true, hive_types = {'date': varchar, 'hour': bigint, 'host': varchar});
