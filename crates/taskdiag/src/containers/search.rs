//! Where each runtime keeps the names of a container.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use taskdiag_wire::Reason;

use super::json::{self, Names};
use super::open::{self, Found, Owner, Place, Stamp};

/// The largest number of bytes of a file about one container, of a list of root's, and of a user's.
const FILE: u64 = 4 << 20;
const LIST: u64 = 32 << 20;
const USERS: u64 = 1 << 20;
/// The largest number of names in a directory that are looked at.
const ENTRIES: usize = 65_536;
/// The largest number of remembered containers: of one user, and of all lists together.
const USERS_ENTRIES: usize = 1024;
const ALL_ENTRIES: usize = 65_536;

/// How long what a user's list has is taken without another look at the file.
const USERS_LIST_AGAIN: Duration = Duration::from_secs(2);

/// A container whose names are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The id, if the name of the control group has one: hexadecimal digits.
    pub id: Option<&'a str>,
    /// The runtime, if the path of the control group shows it.
    pub runtime: Option<&'static str>,
    /// The uid of its pod.
    pub pod: Option<&'a str>,
    /// The user who owns the container.
    pub owner: Owner,
}

/// The file that the names came from.
pub type Source = (Place, Owner, Stamp);

/// Names, with the runtime that has them.
#[derive(Debug)]
pub struct Hit {
    /// The runtime.
    pub runtime: &'static str,
    /// The names.
    pub names: Names,
    /// The file, if there is one.
    pub source: Option<Source>,
    /// The reason for each name that is missing here.
    pub otherwise: Reason,
}

/// A list of many containers, with the file or directory that it is from.
#[derive(Debug)]
struct Listed<T> {
    stamp: Option<Stamp>,
    /// `Err`: it could not be read.
    entries: Result<HashMap<Vec<u8>, T>, Reason>,
}

/// The content of lists that were read. Changed lists are read again.
#[derive(Debug, Default)]
pub struct Lists {
    /// By user: the home directory, and when that was found.
    homes: HashMap<u32, (Instant, Found<PathBuf>)>,
    /// With the time of the last look at the file.
    stores: HashMap<Place, (Instant, Listed<Names>)>,
    /// By uid: namespace and name of each pod.
    pods: Option<Listed<(Vec<u8>, Vec<u8>)>>,
    /// By id: pod, namespace and name of each container of Kubernetes.
    logs: Option<Listed<[Vec<u8>; 3]>>,
}

impl Lists {
    /// Forgets the lists when they are many or have many entries. Any user can have eight of them.
    pub fn prune(&mut self) {
        let entries = self.stores.values().filter_map(|(_, l)| l.entries.as_ref().ok());
        if self.stores.len() > 1024 || entries.map(HashMap::len).sum::<usize>() > ALL_ENTRIES {
            self.stores.clear();
        }
        if self.homes.len() > 1024 {
            self.homes.clear();
        }
    }

    /// The home directory of a user, as it was found in the last seconds.
    fn home(&mut self, root: &Path, uid: u32) -> Found<PathBuf> {
        let old = self.homes.get(&uid).filter(|(at, _)| at.elapsed() < super::AGAIN);
        if let Some((_, home)) = old {
            return home.clone();
        }
        let home = open::home(root, uid);
        self.homes.insert(uid, (Instant::now(), home.clone()));
        home
    }
}

fn place(base: PathBuf, below: impl AsRef<Path>) -> Place {
    Place { base, below: below.as_ref().to_owned() }
}

/// Why names are not known. A lack of rights counts before all else, because the user can change
/// it.
#[derive(Debug, Default)]
struct Why(Option<Reason>);

impl Why {
    fn settle(&mut self, found: Found<Hit>) -> Option<Hit> {
        found.unwrap_or_else(|reason| {
            if self.0 != Some(Reason::Denied) {
                self.0 = Some(reason);
            }
            None
        })
    }
}

/// The names of a container, from the files below `root`. `Err` has the reason why they are not
/// known; `Ok(None)` means that no runtime has the container.
pub fn find(root: &Path, wanted: Wanted<'_>, lists: &mut Lists) -> Found<Hit> {
    let mut why = Why::default();
    let mut hit = None;
    if let Some(id) = wanted.id {
        let mut ask = |name: &str, get: &mut dyn FnMut() -> Found<Hit>| {
            let may_have = match wanted.runtime {
                Some(known @ ("docker" | "podman" | "containerd" | "cri-o")) => known == name,
                _ => true,
            };
            if may_have && hit.is_none() {
                hit = why.settle(get());
            }
        };
        match wanted.owner {
            Owner::Root => {
                ask("docker", &mut || docker(root, id));
                ask("containerd", &mut || containerd(root, id));
                ask("cri-o", &mut || crio(root, id));
                ask("podman", &mut || podman(root, id, lists));
            }
            Owner::User(uid) => {
                hit = why.settle(rootless(root, id, uid, wanted.runtime, lists));
            }
        }
    }
    let has_pod = hit.as_ref().is_some_and(|h| h.names.pod_name.is_some());
    if wanted.owner == Owner::Root && !has_pod && (wanted.pod.is_some() || hit.is_none()) {
        let more = why.settle(kubernetes(root, wanted, lists));
        hit = match (hit, more) {
            (Some(mut hit), Some(more)) => {
                hit.names.pod_name = more.names.pod_name;
                hit.names.pod_namespace = more.names.pod_namespace;
                Some(hit)
            }
            // The image is in the file that could not be read.
            (None, Some(more)) => Some(Hit { otherwise: why.0.unwrap_or(Reason::Absent), ..more }),
            (hit, None) => hit,
        };
    }
    match (hit, why.0) {
        (None, Some(reason)) => Err(reason),
        (hit, _) => Ok(hit),
    }
}

/// A file about one container.
fn file(
    place: Place,
    owner: Owner,
    runtime: &'static str,
    parse: fn(&[u8]) -> Option<Names>,
) -> Found<Hit> {
    let most = if owner == Owner::Root { FILE } else { USERS };
    let Some((text, stamp)) = open::read(&place, owner, most)? else { return Ok(None) };
    let names = parse(&text).ok_or(Reason::Unsupported)?;
    Ok(Some(Hit { runtime, names, source: Some((place, owner, stamp)), otherwise: Reason::Absent }))
}

/// The first hit. If there is none, the first error counts.
fn first_of(
    places: impl IntoIterator<Item = Place>,
    get: impl Fn(Place) -> Found<Hit>,
) -> Found<Hit> {
    let mut why = None;
    for place in places {
        match get(place) {
            Ok(None) => {}
            Ok(hit) => return Ok(hit),
            Err(reason) => why = why.or(Some(reason)),
        }
    }
    why.map_or(Ok(None), Err)
}

fn docker(root: &Path, id: &str) -> Found<Hit> {
    let mut roots =
        vec![root.join("var/lib/docker"), root.join("var/snap/docker/common/var-lib-docker")];
    let config = place(root.to_owned(), "etc/docker/daemon.json");
    if let Ok(Some((text, _))) = open::read(&config, Owner::Root, FILE) {
        if let Some(other) = json::data_root(&text).filter(|path| path.starts_with(b"/")) {
            roots.insert(0, open::below(root, &other));
        }
    }
    let below = Path::new("containers").join(id).join("config.v2.json");
    let all = roots.into_iter().map(|base| place(base, &below));
    first_of(all, |place| file(place, Owner::Root, "docker", json::docker))
}

/// The directories of state of containerd: its own, and those of k3s, k0s and MicroK8s.
const CONTAINERD: [&str; 4] = [
    "run/containerd",
    "run/k3s/containerd",
    "run/k0s/containerd",
    "var/snap/microk8s/common/run/containerd",
];

fn containerd(root: &Path, id: &str) -> Found<Hit> {
    let mut why = None;
    for state in CONTAINERD {
        let tasks = root.join(state).join("io.containerd.runtime.v2.task");
        // One directory for each namespace of containerd.
        let namespaces =
            match open::list(&place(root.join(state), "io.containerd.runtime.v2.task"), 1024) {
                Ok(Some((names, _))) => names,
                Ok(None) => continue,
                Err(reason) => {
                    why = why.or(Some(reason));
                    continue;
                }
            };
        let places = namespaces.iter().filter(|n| !n.starts_with(b".")).map(|namespace| {
            let below = Path::new(OsStr::from_bytes(namespace)).join(id).join("config.json");
            place(tasks.clone(), below)
        });
        match first_of(places, |place| file(place, Owner::Root, "containerd", json::bundle)) {
            Ok(None) => {}
            Ok(hit) => return Ok(hit),
            Err(reason) => why = why.or(Some(reason)),
        }
    }
    why.map_or(Ok(None), Err)
}

/// The directories of containers in containers/storage, one for each storage driver.
const DRIVERS: [&str; 4] =
    ["overlay-containers", "vfs-containers", "btrfs-containers", "zfs-containers"];

fn crio(root: &Path, id: &str) -> Found<Hit> {
    let bases = ["run/containers/storage", "var/lib/containers/storage"];
    let places = bases.iter().flat_map(|base| {
        DRIVERS.iter().map(move |driver| {
            let below = Path::new(driver).join(id).join("userdata/config.json");
            place(root.join(base), below)
        })
    });
    first_of(places, |place| {
        let hit = file(place, Owner::Root, "cri-o", json::bundle)?;
        // Podman has such a file, too, without names.
        Ok(hit.filter(|h| h.names.manager.as_deref() != Some(b"libpod")))
    })
}

fn podman(root: &Path, id: &str, lists: &mut Lists) -> Found<Hit> {
    let mut bases =
        vec![root.join("var/lib/containers/storage"), root.join("run/containers/storage")];
    let config = place(root.to_owned(), "etc/containers/storage.conf");
    if let Ok(Some((text, _))) = open::read(&config, Owner::Root, FILE) {
        if let Some(other) = graph_root(&text).filter(|path| path.starts_with(b"/")) {
            bases.insert(0, open::below(root, other));
        }
    }
    stored(bases, Path::new(""), Owner::Root, id, lists)
}

/// The value of `graphroot` in a storage.conf.
fn graph_root(text: &[u8]) -> Option<&[u8]> {
    text.split(|b| *b == b'\n').find_map(|line| {
        let rest = line.trim_ascii().strip_prefix(b"graphroot")?.trim_ascii();
        let value = rest.strip_prefix(b"=")?.trim_ascii();
        value.strip_prefix(b"\"")?.split(|b| *b == b'"').next()
    })
}

/// A container in the lists of containers/storage.
fn stored(
    bases: Vec<PathBuf>,
    below: &Path,
    owner: Owner,
    id: &str,
    lists: &mut Lists,
) -> Found<Hit> {
    let mut why = None;
    for base in bases {
        for driver in DRIVERS {
            for file in ["containers.json", "volatile-containers.json"] {
                let place = place(base.clone(), below.join(driver).join(file));
                match lists.store(&place, owner) {
                    Err(reason) => why = why.or(Some(reason)),
                    Ok(all) => {
                        if let Some(names) = all.get(id.as_bytes()) {
                            let names = Names {
                                name: names.name.clone(),
                                image: names.image.clone(),
                                ..Names::default()
                            };
                            let stamp = lists.stores.get(&place).and_then(|(_, l)| l.stamp);
                            let source = stamp.map(|stamp| (place, owner, stamp));
                            return Ok(Some(Hit {
                                runtime: "podman",
                                names,
                                source,
                                otherwise: Reason::Absent,
                            }));
                        }
                    }
                }
            }
        }
    }
    why.map_or(Ok(None), Err)
}

impl Lists {
    /// The containers in a list. A user's list is looked at once in a while only. Otherwise a user
    /// with many containers, who changes the lists all the time, would make the reader read them
    /// again for each container, and those who wait for names of others would wait for it.
    fn store(&mut self, place: &Place, owner: Owner) -> Result<&HashMap<Vec<u8>, Names>, Reason> {
        let is_recent =
            |(at, _): &(Instant, _)| owner != Owner::Root && at.elapsed() < USERS_LIST_AGAIN;
        if !self.stores.get(place).is_some_and(is_recent) {
            self.look_at_store(place, owner);
        }
        self.stores[place].1.entries.as_ref().map_err(|reason| *reason)
    }

    fn look_at_store(&mut self, place: &Place, owner: Owner) {
        let now = open::look(place, owner);
        let known = self.stores.get_mut(place);
        if let Some((at, _)) = known.filter(|(_, list)| now.is_some() && list.stamp == now) {
            *at = Instant::now();
        } else {
            let most = if owner == Owner::Root { LIST } else { USERS };
            let (stamp, entries) = match open::read(place, owner, most) {
                Ok(Some((text, stamp))) => {
                    let all = json::store(&text).ok_or(Reason::Unsupported);
                    let is_too_long = |all: &HashMap<_, _>| all.len() > USERS_ENTRIES;
                    let all = match (all, owner) {
                        (Ok(all), Owner::User(_)) if is_too_long(&all) => Err(Reason::Truncated),
                        (all, _) => all,
                    };
                    (Some(stamp), all)
                }
                Ok(None) => (None, Ok(HashMap::new())),
                Err(reason) => (now, Err(reason)),
            };
            self.stores.insert(place.clone(), (Instant::now(), Listed { stamp, entries }));
        }
    }
}

/// A container of a user, who runs Podman or Docker without root.
fn rootless(
    root: &Path,
    id: &str,
    uid: u32,
    runtime: Option<&str>,
    lists: &mut Lists,
) -> Found<Hit> {
    let Some(home) = lists.home(root, uid)? else { return Ok(None) };
    let owner = Owner::User(uid);
    let mut hit = Ok(None);
    if runtime != Some("docker") {
        let below = Path::new(".local/share/containers/storage");
        hit = stored(vec![home.clone()], below, owner, id, lists);
    }
    if runtime != Some("podman") && !matches!(hit, Ok(Some(_))) {
        let below = Path::new(".local/share/docker/containers").join(id).join("config.v2.json");
        let docker = file(place(home, below), owner, "docker", json::docker);
        if matches!(docker, Ok(Some(_))) || matches!(hit, Ok(None)) {
            hit = docker;
        }
    }
    hit
}

/// The names in kubelet's log directories, which every user may read on most machines.
fn kubernetes(root: &Path, wanted: Wanted<'_>, lists: &mut Lists) -> Found<Hit> {
    let hit = |names| Ok(Some(Hit { runtime: "", names, source: None, otherwise: Reason::Absent }));
    if let Some(id) = wanted.id {
        let at = place(root.join("var/log"), "containers");
        let all = listed(&mut lists.logs, &at, log)?;
        if let Some([pod, namespace, name]) = all.get(id.as_bytes()) {
            return hit(Names {
                name: Some(name.clone()),
                pod_name: Some(pod.clone()),
                pod_namespace: Some(namespace.clone()),
                ..Names::default()
            });
        }
    }
    let Some(uid) = wanted.pod else { return Ok(None) };
    let at = place(root.join("var/log"), "pods");
    let all = listed(&mut lists.pods, &at, pod)?;
    match all.get(uid.as_bytes()) {
        Some((namespace, pod)) => hit(Names {
            pod_name: Some(pod.clone()),
            pod_namespace: Some(namespace.clone()),
            ..Names::default()
        }),
        None => Ok(None),
    }
}

/// An id or uid, and the data known about it.
type Entry<T> = (Vec<u8>, T);

/// The names in a directory, parsed.
fn listed<'a, T>(
    known: &'a mut Option<Listed<T>>,
    at: &Place,
    parse: fn(&[u8]) -> Option<Entry<T>>,
) -> Result<&'a HashMap<Vec<u8>, T>, Reason> {
    let now = open::look(at, Owner::Root);
    if !known.as_ref().is_some_and(|k| now.is_some() && k.stamp == now) {
        let (stamp, entries) = match open::list(at, ENTRIES) {
            Ok(Some((names, stamp))) => {
                (Some(stamp), Ok(names.iter().filter_map(|n| parse(n)).collect()))
            }
            Ok(None) => (None, Ok(HashMap::new())),
            Err(reason) => (now, Err(reason)),
        };
        *known = Some(Listed { stamp, entries });
    }
    let known = known.as_ref().expect("it was just read");
    known.entries.as_ref().map_err(|reason| *reason)
}

/// `NAMESPACE_POD_UID`, a directory of kubelet for the logs of a pod. The names of Kubernetes have
/// no `_`.
fn pod(name: &[u8]) -> Option<Entry<(Vec<u8>, Vec<u8>)>> {
    let mut parts = name.split(|b| *b == b'_');
    let (namespace, pod, uid) = (parts.next()?, parts.next()?, parts.next()?);
    let is_whole = parts.next().is_none() && [namespace, pod, uid].iter().all(|p| !p.is_empty());
    is_whole.then(|| (uid.to_vec(), (namespace.to_vec(), pod.to_vec())))
}

/// `POD_NAMESPACE_CONTAINER-ID.log`, a link of kubelet to the log of a container.
fn log(name: &[u8]) -> Option<Entry<[Vec<u8>; 3]>> {
    let name = name.strip_suffix(b".log")?;
    let mut parts = name.split(|b| *b == b'_');
    let (pod, namespace, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let (container, id) = rest.split_at_checked(rest.len().checked_sub(65)?)?;
    let id = id.strip_prefix(b"-")?;
    let is_whole = parts.next().is_none() && !pod.is_empty() && !container.is_empty();
    is_whole.then(|| (id.to_vec(), [pod.to_vec(), namespace.to_vec(), container.to_vec()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of a user who changes it all the time is read once in a while, and root's always.
    #[test]
    fn a_users_list_is_not_read_for_each_container() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().canonicalize().expect("it is there");
        let list = place(path.clone(), "containers.json");
        let owner = Owner::User(rustix::process::geteuid().as_raw());
        let put = |id: &str| {
            let text = format!(r#"[{{"id":"{id}","names":["a-name"]}}]"#);
            std::fs::write(path.join("containers.json"), text).expect("it can be written");
        };
        let has = |lists: &mut Lists, owner, id: &str| {
            lists.store(&list, owner).expect("it can be read").contains_key(id.as_bytes())
        };
        let (mut of_user, mut of_root) = (Lists::default(), Lists::default());
        put("first");
        assert!(has(&mut of_user, owner, "first") && has(&mut of_root, Owner::Root, "first"));
        put("the-second");
        assert!(!has(&mut of_user, owner, "the-second"));
        assert!(has(&mut of_root, Owner::Root, "the-second"));
        let (at, _) = of_user.stores.get_mut(&list).expect("it was read");
        *at = at.checked_sub(USERS_LIST_AGAIN).expect("the machine ran for longer");
        assert!(has(&mut of_user, owner, "the-second"));
    }
}
