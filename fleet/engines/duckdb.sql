-- SPDX-License-Identifier: MIT OR Apache-2.0
-- The table `processes` for DuckDB, from the files of `taskdiag convert` below :lake.
create view processes as
select *, cast(floor(epoch(ts)) as bigint) as ts_s, cast(floor(epoch(start)) as bigint) as start_s,
  coalesce(usertime, 0) + coalesce(systime, 0) as cpu_ns
from read_parquet(':lake/date=*/hour=*/host=*/processes*.parquet',
  hive_types = {'date': varchar, 'hour': bigint, 'host': varchar});
