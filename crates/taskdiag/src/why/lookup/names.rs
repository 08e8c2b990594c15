//! Names for waits that have no holder: the file and the mount that a server does not answer for,
//! and the cgroup that is frozen or throttled.

use std::collections::HashMap;
use std::sync::Arc;

use taskdiag_wire::WaitKind;

use super::Look;
use crate::engine::procfs::parse;
use crate::mountinfo;
use crate::why::task::Place;
use crate::why::wait::{Mount, NoHolder};

/// The largest number of threads whose cgroup is looked up.
const CGROUPS: u32 = 4096;
/// The largest number of mount namespaces whose mounts are remembered, and of mounts of each.
const NAMESPACES: usize = 64;
const MOUNTS: usize = 10_000;

/// The results of earlier lookups.
#[derive(Default)]
pub(super) struct Seen {
    cgroups: u32,
    mounts: HashMap<u32, Arc<Vec<Mounted>>>,
}

/// A mount whose file system may wait for a server.
struct Mounted {
    id: u64,
    mount: Mount,
}

/// Whether a file system of this type asks a server. The list has the types that the kernel itself
/// has.
fn asks_server(kind: &[u8]) -> bool {
    const ALL: &[&[u8]] = &[
        b"9p",
        b"afs",
        b"ceph",
        b"cifs",
        b"fuse",
        b"fuseblk",
        b"nfs",
        b"nfs4",
        b"smb3",
        b"virtiofs",
    ];
    ALL.contains(&kind) || kind.starts_with(b"fuse.")
}

/// The mounts of a mountinfo file that may wait for a server.
fn of_servers(text: &[u8]) -> Vec<Mounted> {
    let mounted = |m: mountinfo::Line<'_>| {
        let id = std::str::from_utf8(m.id).ok()?.parse().ok()?;
        let (point, source) = (mountinfo::unescape(m.point), mountinfo::unescape(m.source));
        asks_server(m.kind)
            .then(|| Mounted { id, mount: Mount { point, kind: m.kind.to_vec(), source } })
    };
    mountinfo::lines(text).filter_map(mounted).take(MOUNTS).collect()
}

/// Whether a file is in a directory, or is that directory.
fn is_in(path: &[u8], dir: &[u8]) -> bool {
    let dir = dir.strip_suffix(b"/").unwrap_or(dir);
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// The mount with this id. Without an id, the mount that this path leads to: the one with the
/// longest matching path, or the last of several.
fn find(all: &[Mounted], id: Option<u64>, path: Option<&[u8]>) -> Option<Mount> {
    if let Some(id) = id {
        return all.iter().find(|m| m.id == id).map(|m| m.mount.clone());
    }
    let path = path.filter(|p| !p.split(|b| *b == b'/').any(|part| part == b".."))?;
    let of_path = all.iter().filter(|m| is_in(path, &m.mount.point));
    of_path.max_by_key(|m| m.mount.point.len()).map(|m| m.mount.clone())
}

/// The path of the cgroup that freezes or throttles, by the text of /proc/PID/cgroup. `option` is
/// the controller of the first version of cgroups; `None` is the second version.
fn cgroup(text: &[u8], option: Option<&[u8]>) -> Option<Vec<u8>> {
    let found = parse::cgroup_lines(text).find(|line| match option {
        None => line.hierarchy == 0,
        Some(option) => {
            let controllers = line.text.split(|b| *b == b':').next().unwrap_or_default();
            line.hierarchy != 0 && controllers.split(|b| *b == b',').any(|c| c == option)
        }
    });
    found.map(|line| line.path.to_vec())
}

impl Look<'_> {
    /// Finds the name and the mount of the file for which a call waits, by its descriptor or its
    /// path.
    pub(super) fn name_file(&mut self, at: usize) {
        let (place, call) = self.wait(at);
        let Some(call) = call else { return };
        let before = self.waits.all[at].switches;
        let found = self.within(place.tgid, move || {
            let stand = place.stand_in(&call, before)?;
            let open = call.descriptor().and_then(|fd| Some((place.link(fd)?, place.mount_id(fd))));
            let found = open.or_else(|| Some((place.text(call.path()?)?, None)));
            place.is_still(&stand)?;
            Ok(found)
        });
        let Ok(Some((file, id))) = found else { return };
        let mount = self.mounts(place).and_then(|all| find(&all, id, Some(&file)));
        let wait = &mut self.waits.all[at];
        (wait.file, wait.mount) = (Some(file), mount);
    }

    /// The mounts that a process sees and that may wait for a server.
    fn mounts(&mut self, place: Place) -> Option<Arc<Vec<Mounted>>> {
        let namespace = self.within(place.tgid, move || Ok(place.mount_namespace())).ok()??;
        if let Some(known) = self.names.mounts.get(&namespace) {
            return Some(Arc::clone(known));
        }
        if self.names.mounts.len() >= NAMESPACES {
            return None;
        }
        let text = self.within(place.tgid, move || place.mountinfo()).ok()?;
        let found = Arc::new(of_servers(&text));
        self.names.mounts.insert(namespace, Arc::clone(&found));
        Some(found)
    }

    /// Finds the cgroup that a thread is frozen or throttled with.
    pub(super) fn name_cgroup(&mut self, at: usize) {
        let wait = &self.waits.all[at];
        // Only the first version freezes a thread in state D.
        let option: Option<&[u8]> = match wait.kind {
            Some(WaitKind::Frozen) => (wait.state == b'D').then_some(b"freezer"),
            _ => Some(b"cpu"),
        };
        let is_throttled = wait.kind == Some(WaitKind::Throttled);
        let (place, _) = self.wait(at);
        self.names.cgroups += 1;
        if self.names.cgroups > CGROUPS {
            return;
        }
        let found = self.within(place.tgid, move || {
            let text = place.cgroups()?;
            // The controller is in one of the two versions.
            let found = cgroup(&text, option);
            let found = found.or_else(|| cgroup(&text, None).filter(|_| is_throttled));
            found.ok_or(NoHolder::NotKnown)
        });
        self.waits.all[at].cgroup = found.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &[u8] = b"\
22 1 0:20 / / rw - ext4 /dev/vda rw
41 22 0:38 / /mnt rw,relatime shared:1 - fuse.sshfs host:/a rw
42 41 0:39 / /mnt/in\\040it rw - nfs4 server:/b\\040c rw
43 22 0:40 / /proc rw - proc proc rw
";

    fn point(id: Option<u64>, path: &str) -> Option<String> {
        let found = find(&of_servers(MOUNTINFO), id, Some(path.as_bytes()))?;
        Some(String::from_utf8(found.point).expect("text"))
    }

    #[test]
    fn a_file_is_on_the_innermost_mount() {
        assert_eq!(point(None, "/mnt/in it/file").as_deref(), Some("/mnt/in it"));
        assert_eq!(point(None, "/mnt/in").as_deref(), Some("/mnt"));
        assert_eq!(point(None, "/mnt").as_deref(), Some("/mnt"));
        assert_eq!(point(None, "/mntx/file"), None);
        assert_eq!(point(None, "/home/file"), None);
        assert_eq!(point(None, "/mnt/in it/../file"), None);
        assert_eq!(point(Some(41), "/mnt/in it/file").as_deref(), Some("/mnt"));
        assert_eq!(point(Some(22), "/mnt/file"), None);
        let nfs = &of_servers(MOUNTINFO)[1].mount;
        assert_eq!((&nfs.kind[..], &nfs.source[..]), (&b"nfs4"[..], &b"server:/b c"[..]));
    }

    #[test]
    fn a_cgroup_is_that_of_the_hierarchy_that_stops_it() {
        let text = b"4:freezer:/cold\n3:cpu,cpuacct:/slow\n0::/unit\n";
        let path = |option: Option<&[u8]>| cgroup(text, option);
        assert_eq!(path(Some(b"freezer")).as_deref(), Some(&b"/cold"[..]));
        assert_eq!(path(Some(b"cpu")).as_deref(), Some(&b"/slow"[..]));
        assert_eq!(path(None).as_deref(), Some(&b"/unit"[..]));
        assert_eq!(cgroup(b"0::/unit\n", Some(b"cpu")), None);
    }
}
