-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Views over the live tables.

-- The namespaces of processes, as in lsns: the type, the inode, how many processes, and the lowest
-- pid.
create view namespaces as
select type, ns, count(*) as processes, min(pid) as pid from (
  select 'cgroup' as type, cgroupns as ns, pid from live.processes
  union all select 'ipc', ipcns, pid from live.processes
  union all select 'mnt', mntns, pid from live.processes
  union all select 'net', netns, pid from live.processes
  union all select 'pid', pidns, pid from live.processes
  union all select 'time', timens, pid from live.processes
  union all select 'user', userns, pid from live.processes
  union all select 'uts', utsns, pid from live.processes
) where ns is not null group by type, ns;

-- The threads that wait: for what, since when, and who holds it, as in taskdiag why. Threads in state
-- R run or could run, and workers of the kernel in state I wait for work.
create view waits as
select pid, tid, comm, s, waits_on, waited, waits_for, waits_for_comm, waits_for_how, syscall, wchan
from live.threads where s not in ('R', 'I');
