-- SPDX-License-Identifier: MIT OR Apache-2.0
-- The tables of osquery about processes, with its names and units, made from data of the library.

create view processes as
select
  cast(pid as bigint) as pid,
  comm as name,
  regexp_replace(exe, ' \(deleted\)$', '') as path,
  array_to_string(args, ' ') as cmdline,
  s as state,
  cwd,
  root,
  cast(ruid as bigint) as uid,
  cast(rgid as bigint) as gid,
  cast(uid as bigint) as euid,
  cast(gid as bigint) as egid,
  cast(suid as bigint) as suid,
  cast(sgid as bigint) as sgid,
  case when exe is null then -1 when exe like '% (deleted)' then 0 else 1 end as on_disk,
  cast(0 as bigint) as wired_size,
  cast(rss as bigint) as resident_size,
  cast(vsz as bigint) as total_size,
  cast(usertime as bigint) / 1000000 as user_time,
  cast(systime as bigint) / 1000000 as system_time,
  cast(read_bytes as bigint) as disk_bytes_read,
  cast(write_bytes as bigint) as disk_bytes_written,
  cast(date_part('epoch', start) as bigint) as start_time,
  cast(ppid as bigint) as parent,
  cast(pgid as bigint) as pgroup,
  cast(nlwp as bigint) as threads,
  cast(ni as bigint) as nice,
  cgroup_path
from live.processes;

create view process_open_files as
select cast(pid as bigint) as pid, cast(fdnum as bigint) as fd, path
from live.files
where type in ('REG', 'DIR', 'CHR', 'BLK') and path is not null;

create view process_open_sockets as
select
  cast(pid as bigint) as pid,
  cast(fdnum as bigint) as fd,
  cast(inode as bigint) as socket,
  case family when 'inet' then 2 when 'inet6' then 10 when 'unix' then 1 when 'netlink' then 16 when 'packet' then 17
    else 0 end as family,
  case when family in ('inet', 'inet6') then
    case lower(protocol) when 'tcp' then 6 when 'udp' then 17 when 'udplite' then 136 when 'icmp' then 1
      when 'icmpv6' then 58 when 'sctp' then 132 when 'mptcp' then 262 when 'raw' then 255 else 0 end
    else 0 end as protocol,
  coalesce(laddr, '') as local_address,
  coalesce(raddr, '') as remote_address,
  coalesce(cast(lport as bigint), 0) as local_port,
  coalesce(cast(rport as bigint), 0) as remote_port,
  case when family = 'unix' then coalesce(path, '') else '' end as path,
  coalesce(sockstate, '') as state,
  cast(sock_netns as bigint) as net_namespace
from live.sockets;

create view listening_ports as
select pid, local_port as port, protocol, family, local_address as address, fd, socket, path, net_namespace
from osquery.process_open_sockets
where state = 'LISTEN' or (family in (2, 10) and protocol <> 6 and remote_port = 0) or family = 1;

create view process_memory_map as
select
  cast(pid as bigint) as pid,
  '0x' || lpad(to_hex(address), 16, '0') as start,
  '0x' || lpad(to_hex("end"), 16, '0') as "end",
  perms as permissions,
  cast("offset" as bigint) as "offset",
  device,
  cast(inode as bigint) as inode,
  coalesce(mapping, '') as path,
  case when path is null then 1 else 0 end as pseudo
from live.maps;

create view process_envs as
select cast(pid as bigint) as pid, split_part(variable, '=', 1) as key,
  substr(variable, strpos(variable, '=') + 1) as value
from (select pid, unnest(environ) as variable from live.processes);

create view process_namespaces as
select
  cast(pid as bigint) as pid,
  cast(cgroupns as varchar) as cgroup_namespace,
  cast(ipcns as varchar) as ipc_namespace,
  cast(mntns as varchar) as mnt_namespace,
  cast(netns as varchar) as net_namespace,
  cast(pidns as varchar) as pid_namespace,
  cast(userns as varchar) as user_namespace,
  cast(utsns as varchar) as uts_namespace
from live.processes;

create view process_open_pipes as
select cast(pid as bigint) as pid, cast(fdnum as bigint) as fd, access as mode, cast(inode as bigint) as inode,
  array_to_string(ends, ' ') as partners
from live.files
where kind = 'pipe';

create view time as
select
  cast(date_part('epoch', now()) as bigint) as unix_time,
  cast(date_part('year', now()) as bigint) as year,
  cast(date_part('month', now()) as bigint) as month,
  cast(date_part('day', now()) as bigint) as day,
  cast(date_part('hour', now()) as bigint) as hour,
  cast(date_part('minute', now()) as bigint) as minutes,
  cast(date_part('second', now()) as bigint) as seconds,
  to_char(now(), '%Y-%m-%dT%H:%M:%SZ') as iso_8601;
