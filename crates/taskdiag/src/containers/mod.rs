//! The names of containers and pods, from the files that their runtimes keep on disk.
//!
//! The path of a control group has the id of a container and the uid of a pod ([`crate::cgroup`]).
//! Docker, containerd, CRI-O, Podman and kubelet keep the names in files, which are read here. No
//! daemon is asked, because it may be stuck, and because asking takes the rights of root.
//!
//! A file is read once for each container, and again when it has changed. Its environment,
//! arguments and other labels are not kept: see `json`. A container without a file has no names. If
//! its file may not be read, the names have a reason in their place.
//!
//! The files are those of the machine that runs the reader. The variable `TASKDIAG_HOST_ROOT` has
//! another directory for `/`, as for a reader in a container that has the machine's files mounted.

mod json;
mod maker;
mod open;
mod search;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use taskdiag_wire::{ContainerPart, ContainerView, Reason};

use crate::cgroup;
use maker::Makers;
use open::Owner;
use search::{Lists, Source, Wanted};

/// A name, or why there is none. [`Reason::Absent`]: the container has none.
pub type Named = Result<Box<[u8]>, Reason>;

/// The names of the container and the pod that a control group belongs to. They are text of any
/// bytes, because a user who runs containers may choose them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContainerNames {
    /// The runtime that has the container.
    pub runtime: Named,
    /// The name of the container.
    pub name: Named,
    /// The name of its image.
    pub image: Named,
    /// The name of its pod.
    pub pod_name: Named,
    /// The namespace of its pod in Kubernetes.
    pub pod_namespace: Named,
}

impl ContainerNames {
    fn all(reason: Reason) -> ContainerNames {
        ContainerNames {
            runtime: Err(reason),
            name: Err(reason),
            image: Err(reason),
            pod_name: Err(reason),
            pod_namespace: Err(reason),
        }
    }
    /// For a container of an answer that kept no names, as one from another machine.
    pub(crate) fn unknown() -> ContainerNames {
        ContainerNames::all(Reason::Unsupported)
    }
    /// The names that were kept with a stream.
    pub(crate) fn kept(view: ContainerView<'_>) -> ContainerNames {
        let part = |part| match view.part(part) {
            Some(value) => value.map(Into::into),
            None => Err(Reason::Unsupported),
        };
        ContainerNames {
            runtime: part(ContainerPart::Runtime),
            name: part(ContainerPart::Name),
            image: part(ContainerPart::Image),
            pod_name: part(ContainerPart::PodName),
            pod_namespace: part(ContainerPart::PodNamespace),
        }
    }
    /// The values to keep with a stream.
    pub(crate) fn parts(&self) -> [(ContainerPart, Result<&[u8], Reason>); 5] {
        fn of(named: &Named) -> Result<&[u8], Reason> {
            named.as_deref().map_err(|reason| *reason)
        }
        [
            (ContainerPart::Runtime, of(&self.runtime)),
            (ContainerPart::Name, of(&self.name)),
            (ContainerPart::Image, of(&self.image)),
            (ContainerPart::PodName, of(&self.pod_name)),
            (ContainerPart::PodNamespace, of(&self.pod_namespace)),
        ]
    }
}

/// Does this path of a control group belong to a container or a pod?
pub fn is_contained(path: &[u8]) -> bool {
    cgroup::container(path).is_some() || cgroup::pod(path).is_some()
}

/// The variable with the directory that has the machine's files.
const ROOT: &str = "TASKDIAG_HOST_ROOT";
/// A container without names is looked for again after this time.
const AGAIN: Duration = Duration::from_secs(2);
/// After this time, the container of a control group is looked up again.
const PLACE_AGAIN: Duration = Duration::from_secs(60);
/// The largest number of containers, and of paths of control groups, that are remembered.
const MOST: usize = 16_384;
/// The longest wait for another thread that looks up names.
const PATIENCE: Duration = Duration::from_millis(500);

/// A container or pod, as far as the path of a control group and its directory show it. All groups
/// in it have the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    runtime: Option<&'static str>,
    /// The id, or the name if the runtime only has names.
    id: Option<Box<[u8]>>,
    pod: Option<Box<[u8]>>,
    /// The user who owns the container. `None`: several users could have made the group.
    owner: Option<Owner>,
    /// Is the container within another one? Then the files about it are not on this machine.
    is_nested: bool,
}

impl Identity {
    fn of(root: &Path, path: &[u8], makers: &mut Makers) -> Option<Identity> {
        let container = cgroup::container(path);
        let pod = cgroup::pod(path);
        if container.is_none() && pod.is_none() {
            return None;
        }
        // A process in a container may make groups of any name there.
        let outer = cgroup::outermost(path).unwrap_or(path);
        let id_of = |path| cgroup::container(path).map(|c| c.id);
        let is_nested = id_of(outer) != id_of(path) || cgroup::pod(outer) != pod;
        Some(Identity {
            runtime: container.as_ref().and_then(|c| c.runtime),
            id: container.map(|c| c.id.as_ref().into()),
            pod: pod.map(|pod| pod.as_ref().into()),
            owner: makers.of(root, outer),
            is_nested,
        })
    }
}

#[derive(Debug)]
struct Entry {
    names: Arc<ContainerNames>,
    source: Option<Source>,
    at: Instant,
}

/// The known containers of a machine, and the names found for them.
#[derive(Debug, Default)]
pub struct Containers {
    root: PathBuf,
    /// Does the root stay, whatever the environment says?
    is_set: bool,
    /// By path of a control group: the time of the last look, and the container it belongs to.
    places: HashMap<Box<[u8]>, (Instant, Option<Identity>)>,
    entries: HashMap<Identity, Entry>,
    makers: Makers,
    lists: Lists,
}

/// The containers of this process's machine, which all answers share.
static HOST: Mutex<Option<Containers>> = Mutex::new(None);

impl Containers {
    /// The containers whose runtimes have their files below this directory.
    pub fn new(root: impl Into<PathBuf>) -> Containers {
        Containers { root: root.into(), ..Containers::default() }
    }
    /// The names of the container and pod that the control group with this path belongs to. `None`:
    /// it belongs to no container or pod.
    pub fn names(&mut self, path: &[u8]) -> Option<Arc<ContainerNames>> {
        let is_known = self.places.get(path).is_some_and(|(at, _)| at.elapsed() < PLACE_AGAIN);
        if !is_known {
            if self.places.len() >= MOST {
                self.places.clear();
            }
            let identity = Identity::of(&self.root, path, &mut self.makers);
            self.places.insert(path.into(), (Instant::now(), identity));
        }
        let identity = self.places.get(path)?.1.as_ref()?;
        let old = match self.entries.get(identity) {
            Some(entry) if entry.is_current() => return Some(entry.names.clone()),
            Some(entry) => Some((entry.names.clone(), entry.source.clone())),
            None => None,
        };
        self.lists.prune();
        let (names, source) = look_up(&self.root, identity, &mut self.lists);
        // The file of a container that ends is removed before its last process has ended.
        let (names, source) = match (source, old) {
            (None, Some((names, Some(source)))) => (names, Some(source)),
            (source, _) => (Arc::new(names), source),
        };
        if self.entries.len() >= MOST {
            self.entries.clear();
        }
        let entry = Entry { names: names.clone(), source, at: Instant::now() };
        self.entries.insert(identity.clone(), entry);
        Some(names)
    }
}

impl Entry {
    fn is_current(&self) -> bool {
        let now = self.source.as_ref().map(|(place, owner, _)| open::look(place, *owner));
        match (&self.source, now) {
            (Some((.., stamp)), Some(Some(now))) => now == *stamp,
            _ => self.at.elapsed() < AGAIN,
        }
    }
}

/// Reads the files below this directory from now on, instead of those that the environment names.
pub fn set_host_root(root: impl Into<PathBuf>) {
    if let Some(mut host) = lock() {
        *host = Some(Containers { is_set: true, ..Containers::new(root) });
    }
}

/// The names of the container or pod with this control group on this machine.
pub fn of_host(path: &[u8]) -> Option<Arc<ContainerNames>> {
    let root = if is_elevated() { None } else { std::env::var_os(ROOT) };
    let root = root.filter(|r| !r.is_empty()).map_or_else(|| PathBuf::from("/"), PathBuf::from);
    match lock() {
        Some(mut host) => {
            if host.as_ref().is_none_or(|h| h.root != root && !h.is_set) {
                *host = Some(Containers::new(root));
            }
            host.as_mut().expect("it was just made").names(path)
        }
        None => Containers::new(root).names(path),
    }
}

/// Whether the program has more rights than its caller. Then the caller's environment is not
/// trusted.
fn is_elevated() -> bool {
    // SAFETY: this reads a number that the kernel gave to the process at its start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// In a forked copy of a process whose thread held the lock, the lock is never released. So after a
/// wait without success, callers do not wait again before a thread has got the lock.
fn lock() -> Option<MutexGuard<'static, Option<Containers>>> {
    static WAS_IN_VAIN: AtomicBool = AtomicBool::new(false);
    let begun = Instant::now();
    loop {
        let host = match HOST.try_lock() {
            Ok(host) => host,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            Err(TryLockError::WouldBlock) => {
                if WAS_IN_VAIN.load(Ordering::Relaxed) || begun.elapsed() >= PATIENCE {
                    WAS_IN_VAIN.store(true, Ordering::Relaxed);
                    return None;
                }
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
        };
        WAS_IN_VAIN.store(false, Ordering::Relaxed);
        return Some(host);
    }
}

/// An id or uid that may be part of the name of a file.
fn checked(id: &[u8]) -> Option<&str> {
    let is_id = id.iter().all(|b| b.is_ascii_hexdigit() || *b == b'-') && id.len() >= 32;
    std::str::from_utf8(id).ok().filter(|_| is_id)
}

fn look_up(root: &Path, of: &Identity, lists: &mut Lists) -> (ContainerNames, Option<Source>) {
    let runtime = of.runtime;
    let id = of.id.as_deref().and_then(checked);
    let mut names = ContainerNames::all(Reason::Absent);
    if let Some(word) = runtime {
        names.runtime = Ok(word.as_bytes().into());
    }
    if let (Some(name), None) = (&of.id, id) {
        // The path has the name itself.
        if matches!(runtime, Some("lxc" | "nspawn" | "libvirt-lxc" | "rkt")) {
            names.name = Ok(name.clone());
            if runtime == Some("lxc") && of.owner == Some(Owner::Root) && !of.is_nested {
                incus(root, name, &mut names);
            }
        }
        if of.pod.is_none() {
            return (names, None);
        }
    }
    if of.is_nested {
        return (names, None);
    }
    let Some(owner) = of.owner else {
        let runtime = names.runtime.or(Err(Reason::Unsupported));
        return (ContainerNames { runtime, ..ContainerNames::all(Reason::Unsupported) }, None);
    };
    let pod = of.pod.as_deref().and_then(checked);
    let found = search::find(root, Wanted { id, runtime, pod, owner }, lists);
    let source = match found {
        Ok(Some(hit)) => {
            let named = |name: Option<Vec<u8>>| name.map(Into::into).ok_or(hit.otherwise);
            if !hit.runtime.is_empty() && names.runtime.is_err() {
                names.runtime = Ok(hit.runtime.as_bytes().into());
            }
            names.name = named(hit.names.name);
            names.image = named(hit.names.image);
            names.pod_name = named(hit.names.pod_name);
            names.pod_namespace = named(hit.names.pod_namespace);
            hit.source
        }
        Ok(None) => None,
        Err(reason) => {
            let runtime = names.runtime.or(Err(reason));
            names = ContainerNames { runtime, ..ContainerNames::all(reason) };
            None
        }
    };
    (names, source)
}

/// The directories of instances of Incus and LXD, which run LXC.
const INSTANCES: [(&str, &str); 3] = [
    ("var/lib/incus/containers", "incus"),
    ("var/lib/lxd/containers", "lxd"),
    ("var/snap/lxd/common/lxd/containers", "lxd"),
];

/// Tells Incus and LXD from plain LXC. Instances of other projects than the default one have the
/// project and `_` before their name.
fn incus(root: &Path, id: &[u8], names: &mut ContainerNames) {
    use std::os::unix::ffi::OsStrExt as _;
    let is_file = |b: &u8| b.is_ascii_alphanumeric() || b"-_.".contains(b);
    if !id.iter().all(is_file) || id.starts_with(b".") {
        return;
    }
    let below = PathBuf::from(std::ffi::OsStr::from_bytes(id));
    let found = INSTANCES.iter().find(|(base, _)| {
        let place = open::Place { base: root.join(base), below: below.clone() };
        open::look(&place, Owner::Root).is_some()
    });
    if let Some((_, runtime)) = found {
        names.runtime = Ok(runtime.as_bytes().into());
        let name = id.rsplit(|b| *b == b'_').next().unwrap_or(id);
        names.name = Ok(name.into());
    }
}
