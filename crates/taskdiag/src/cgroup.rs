//! Parses the path of a control group: the unit, slice and login session of systemd, a container
//! and its runtime, a pod of Kubernetes.
//!
//! These are pure functions over the path in `/proc/PID/cgroup`. The rules for systemd come from
//! its documentation (systemd.slice(5), "Control Group APIs and Delegation"). Container runtimes
//! have no common rule, so each is recognized by the names that it uses. No runtime is asked, so
//! facts that are not in the path, such as the name of a container, are missing.

use std::borrow::Cow;

/// A name with one of these suffixes is a unit of systemd.
const SUFFIXES: [&[u8]; 11] = [
    b".service",
    b".scope",
    b".slice",
    b".socket",
    b".mount",
    b".swap",
    b".automount",
    b".target",
    b".timer",
    b".path",
    b".device",
];
/// The slice of a unit outside of all slices.
const ROOT_SLICE: &[u8] = b"-.slice";

/// The path that systemd uses, among the entries of a task: hierarchy id (0: v2) and
/// `controllers:path`. `None`: there is neither a v2 hierarchy nor one of systemd's own.
pub fn of_systemd<'a>(entries: impl Iterator<Item = (u32, &'a [u8])>) -> Option<&'a [u8]> {
    let mut v2 = None;
    let mut own = None;
    for (id, entry) in entries {
        match entry.strip_prefix(b"name=systemd:") {
            Some(path) => own = Some(without_mark(path)),
            None if id == 0 => v2 = path_of(entry),
            None => {}
        }
    }
    // If both exist, a container may have a path in only one of them.
    own.filter(|p| *p != b"/").or(v2).or(own)
}

/// The path of `controllers:path`, without the mark of a control group that was removed.
pub fn path_of(entry: &[u8]) -> Option<&[u8]> {
    entry.iter().position(|b| *b == b':').map(|colon| without_mark(&entry[colon + 1..]))
}

/// The path of a control group that was removed, which a zombie may still be in, has a mark of the
/// kernel's at its end. It belongs to no name.
fn without_mark(path: &[u8]) -> &[u8] {
    path.strip_suffix(b" (deleted)").unwrap_or(path)
}

fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
    path.split(|b| *b == b'/').filter(|p| !p.is_empty())
}

/// A component as the name of a unit: systemd puts `_` before a name that would clash with a file
/// of the kernel.
fn unit_name(part: &[u8]) -> Option<&[u8]> {
    let name = part.strip_prefix(b"_").unwrap_or(part);
    let valid = |b: &u8| b.is_ascii_alphanumeric() || b":-_.\\@".contains(b);
    let is_unit = SUFFIXES.iter().any(|s| name.len() > s.len() && name.ends_with(s));
    (is_unit && name.iter().all(valid)).then_some(name)
}

fn is_slice(part: &[u8]) -> bool {
    part.ends_with(b".slice") && unit_name(part).is_some()
}

/// The first unit in `parts` after slices, and the rest.
fn first_unit<'a>(
    parts: impl Iterator<Item = &'a [u8]> + Clone,
) -> Option<(&'a [u8], impl Iterator<Item = &'a [u8]> + Clone)> {
    let mut rest = parts.skip_while(|p| is_slice(p));
    let unit = unit_name(rest.next()?)?;
    Some((unit, rest))
}

/// The unit of the system's manager, as `ssh.service` or `session-3.scope`.
pub fn unit(path: &[u8]) -> Option<&[u8]> {
    first_unit(parts(path)).map(|(unit, _)| unit)
}

/// The unit of a user's manager.
pub fn user_unit(path: &[u8]) -> Option<&[u8]> {
    let (manager, rest) = first_unit(parts(path))?;
    let is_manager = middle(manager, b"user@", b".service").is_some();
    let is_session = middle(manager, b"session-", b".scope").is_some();
    if !is_manager && !is_session {
        return None;
    }
    first_unit(rest).map(|(unit, _)| unit)
}

/// The innermost slice of the system's manager; `-.slice` is the root of all.
pub fn slice(path: &[u8]) -> &[u8] {
    parts(path).take_while(|p| is_slice(p)).last().unwrap_or(ROOT_SLICE)
}

/// The uid of the user that the slice belongs to.
pub fn owner(path: &[u8]) -> Option<u32> {
    let digits = middle(slice(path), b"user-", b".slice")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The login session.
pub fn session(path: &[u8]) -> Option<&[u8]> {
    middle(unit(path)?, b"session-", b".scope")
}

/// The machine, as known to systemd-machined: a container of systemd-nspawn(1), or a virtual
/// machine or container of libvirt.
pub fn machine(path: &[u8]) -> Option<Cow<'_, [u8]>> {
    let unit = unit(path)?;
    middle(unit, b"machine-", b".scope")
        .or_else(|| middle(unit, b"systemd-nspawn@", b".service"))
        .map(unescaped)
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Container<'a> {
    /// The id of the container, or its name if the runtime only has names.
    pub id: Cow<'a, [u8]>,
    /// The runtime of the container. `None`: the path does not show it.
    pub runtime: Option<&'static str>,
}

/// The names of runtimes in paths: as the directory of their containers, before an id, and in
/// SLICE:RUNTIME:ID, which runc uses with the systemd driver if it got no slice.
const RUNTIMES: [(&[u8], &str); 21] = [
    (b"docker", "docker"),
    (b"docker.service", "docker"),
    // dockerd's name for its containers in containerd.
    (b"moby", "docker"),
    (b"ecs", "docker"),
    (b"buildkit", "buildkit"),
    (b"libpod-payload", "podman"),
    (b"libpod", "podman"),
    (b"libpod_parent", "podman"),
    (b"podman", "podman"),
    (b"cri-containerd", "containerd"),
    (b"containerd", "containerd"),
    (b"containerd.service", "containerd"),
    (b"k8s.io", "containerd"),
    (b"nerdctl", "containerd"),
    (b"crio", "cri-o"),
    (b"cri-o", "cri-o"),
    (b"kata", "kata"),
    (b"kata_overhead", "kata"),
    (b"garden", "garden"),
    (b"mesos", "mesos"),
    (b"lxc", "lxc"),
];

fn runtime(word: &[u8]) -> Option<&'static str> {
    RUNTIMES.iter().find(|(name, _)| *name == word).map(|(_, runtime)| *runtime)
}

/// The innermost container in the path.
pub fn container(path: &[u8]) -> Option<Container<'_>> {
    let mut inner = parts(path).rev();
    while let Some(part) = inner.next() {
        if let Some(found) = container_of(part, inner.clone()) {
            return Some(found);
        }
    }
    None
}

/// The path as far as its outermost container.
pub(crate) fn outermost(path: &[u8]) -> Option<&[u8]> {
    let all: Vec<&[u8]> = path.split(|b| *b == b'/').collect();
    let mut end = 0;
    all.iter().enumerate().find_map(|(n, part)| {
        end += part.len() + usize::from(n > 0);
        let outer = all[..n].iter().rev().copied().filter(|p| !p.is_empty());
        container_of(part, outer).map(|_| &path[..end])
    })
}

/// The container of a component. `outer`: the components before it, the nearest first.
fn container_of<'a>(
    part: &'a [u8],
    mut outer: impl Iterator<Item = &'a [u8]> + Clone,
) -> Option<Container<'a>> {
    let made = |id: &'a [u8], runtime| Some(Container { id: Cow::Borrowed(id), runtime });
    let name = part.strip_suffix(b".scope").unwrap_or(part);
    if let Some((words, id)) = prefixed(name) {
        // The monitor of a container is outside of it.
        if is_monitor(words) {
            return None;
        }
        let found = words.rsplit(|b| *b == b':').next().and_then(runtime);
        return match is_hash(id) {
            true => made(id, found),
            // Other programs have names of 25 letters, too.
            false => matches!(found, Some("docker" | "buildkit"))
                .then(|| made(id, Some("buildkit")))
                .flatten(),
        };
    }
    if let Some(id) = part.strip_prefix(b"lxc.payload.") {
        return made(id, Some("lxc"));
    }
    if let Some(name) = middle(part, b"systemd-nspawn@", b".service") {
        return Some(Container { id: unescaped(name), runtime: Some("nspawn") });
    }
    // A container of NixOS.
    if let Some(name) = middle(part, b"container@", b".service") {
        return Some(Container { id: unescaped(name), runtime: Some("nspawn") });
    }
    if let Some(name) = part.strip_suffix(b".libvirt-lxc").filter(|name| !name.is_empty()) {
        return made(name, Some("libvirt-lxc"));
    }
    if let Some(name) = middle(part, b"machine-", b".scope") {
        let id = unescaped(name);
        let runtime = match &*id {
            name if name.starts_with(b"qemu-") => return None,
            name if name.starts_with(b"lxc-") => "libvirt-lxc",
            name if name.starts_with(b"rkt-") => "rkt",
            _ => "nspawn",
        };
        return Some(Container { id, runtime: Some(runtime) });
    }
    let mut around = outer.clone();
    let parent = outer.next();
    if parent == Some(b"lxc.payload") || parent == Some(b"lxc") {
        return made(part, Some("lxc"));
    }
    if is_task(name) && around.any(|p| p == b"nomad" || p == b"nomad.slice") {
        return made(name, Some("nomad"));
    }
    let of = || around_of(parent.into_iter().chain(outer.clone()));
    match part {
        _ if is_hash(part) => made(part, of()),
        _ if is_build(part) => of()
            .filter(|r| matches!(*r, "docker" | "buildkit"))
            .and_then(|_| made(part, Some("buildkit"))),
        _ if is_fargate(part) => made(part, Some("containerd")).filter(|_| of() == Some("docker")),
        _ if is_guid(part) => {
            let of = of().filter(|r| matches!(*r, "garden" | "mesos"));
            of.and_then(|runtime| made(part, Some(runtime)))
        }
        _ => None,
    }
}

/// The runtime of the nearest directory of one. The search ends at another container, and at the
/// groups of Kubernetes, which do not show the runtime.
fn around_of<'a>(mut outer: impl Iterator<Item = &'a [u8]>) -> Option<&'static str> {
    outer.find_map(|part| {
        let name = part.strip_suffix(b".scope").unwrap_or(part);
        let is_other = is_hash(name) || prefixed(name).is_some_and(|(_, id)| is_hash(id));
        let is_kubernetes = [&b"kubepods"[..], b"kubelet", b"lxc.payload."];
        match is_other || is_kubernetes.iter().any(|p| part.starts_with(p)) {
            true => Some(None),
            false => runtime(part).map(Some),
        }
    })?
}

/// The uid of a pod of Kubernetes.
pub fn pod(path: &[u8]) -> Option<Cow<'_, [u8]>> {
    parts(path).rev().find_map(|part| {
        // With the systemd driver: kubepods-burstable-podUID.slice, UID with `_` for `-`.
        if let Some(name) =
            part.split(|b| *b == b':').next().and_then(|p| p.strip_suffix(b".slice"))
        {
            let at = name.windows(4).rposition(|w| w == b"-pod")?;
            let uid = &name[at + 4..];
            let is_pods = name[..at].windows(8).any(|w| w == b"kubepods");
            let dashed = || uid.iter().map(|b| if *b == b'_' { b'-' } else { *b }).collect();
            return (is_pods && is_uid(uid)).then(|| Cow::Owned(dashed()));
        }
        part.strip_prefix(b"pod").filter(|uid| is_uid(uid)).map(Cow::Borrowed)
    })
}

/// An id at the end of a name, and the text before it.
fn prefixed(name: &[u8]) -> Option<(&[u8], &[u8])> {
    [HASH, BUILD].into_iter().find_map(|len| {
        let (words, id) = name.split_at_checked(name.len().checked_sub(len)?)?;
        let (sign, words) = words.split_last()?;
        let is_split = matches!(sign, b'-' | b'_' | b':') && !words.is_empty();
        (is_split && (is_hash(id) || is_build(id))).then_some((words, id))
    })
}

/// Is it the name of the monitor of a container, such as conmon?
fn is_monitor(words: &[u8]) -> bool {
    words.split(|b| matches!(b, b'-' | b'_' | b':')).any(|w| w == b"conmon" || w == b"shim")
}

/// How many digits an id of a runtime has.
const HASH: usize = 64;
/// How many letters and digits an id of BuildKit has.
const BUILD: usize = 25;

/// The id that runtimes give: hexadecimal digits.
fn is_hash(text: &[u8]) -> bool {
    text.len() == HASH && text.iter().all(u8::is_ascii_hexdigit)
}

/// The id that BuildKit gives a step of a build.
fn is_build(text: &[u8]) -> bool {
    text.len() == BUILD && text.iter().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
}

/// The id that Amazon's Fargate gives: that of the task, and a number.
fn is_fargate(text: &[u8]) -> bool {
    let is_task = |t: &[u8]| t.len() == 32 && t.iter().all(u8::is_ascii_hexdigit);
    let is_number = |n: &[u8]| !n.is_empty() && n.iter().all(u8::is_ascii_digit);
    text.split_at_checked(32)
        .is_some_and(|(task, n)| is_task(task) && n.strip_prefix(b"-").is_some_and(is_number))
}

/// Is it a UUID, or an id of Garden, which is a UUID with a shorter last part?
fn is_guid(text: &[u8]) -> bool {
    let mut parts = text.split(|b| *b == b'-');
    let is_part = |len: usize, part: Option<&[u8]>| {
        part.is_some_and(|p| p.len() == len && p.iter().all(u8::is_ascii_hexdigit))
    };
    let begins = [8, 4, 4, 4].into_iter().all(|len| is_part(len, parts.next()));
    let last = parts.next();
    begins && (is_part(12, last) || is_part(4, last)) && parts.next().is_none()
}

/// A task of Nomad: the allocation, and perhaps the name of the task.
fn is_task(name: &[u8]) -> bool {
    let allocation = name.split(|b| *b == b'.').next().unwrap_or_default();
    allocation.len() == 36 && is_guid(allocation)
}

/// A UUID, or the hash that a static pod has in its place.
fn is_uid(text: &[u8]) -> bool {
    matches!(text.len(), 32 | 36)
        && text.iter().all(|b| b.is_ascii_hexdigit() || matches!(b, b'-' | b'_'))
}

/// The text between two parts of a name. `None`: one of them is missing, or there is nothing
/// between them.
fn middle<'a>(name: &'a [u8], before: &[u8], after: &[u8]) -> Option<&'a [u8]> {
    name.strip_prefix(before)?.strip_suffix(after).filter(|m| !m.is_empty())
}

/// systemd writes characters that are not allowed in names of units as `\xNN`.
fn unescaped(name: &[u8]) -> Cow<'_, [u8]> {
    if !name.contains(&b'\\') {
        return Cow::Borrowed(name);
    }
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let [first, tail @ ..] = rest {
        let code = tail.strip_prefix(b"x").and_then(|t| t.get(..2));
        let code = code.and_then(|c| u8::from_str_radix(std::str::from_utf8(c).ok()?, 16).ok());
        match code.filter(|_| *first == b'\\') {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f2a9c1e5b7d8f60a1b2c3d4e5f60718293a4b5c6d7e8f90112233445566778a";
    const UID: &str = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";

    fn text(t: Option<impl AsRef<[u8]>>) -> String {
        t.map_or("-".into(), |t| String::from_utf8(t.as_ref().to_vec()).expect("text"))
    }

    const BUILD_ID: &str = "x5h7oizyhrunip3o2urd7of1d";
    const TASK: &str = "0123456789abcdef0123456789abcdef";

    /// The names stand for the constants above, U for UID with `_`, and ID2 for ID from its end.
    fn real(path: &str) -> String {
        let id2: String = ID.chars().rev().collect();
        let path = path.replace("{ID2}", &id2).replace("{BUILD}", BUILD_ID).replace("{TASK}", TASK);
        path.replace("{ID}", ID).replace("{UID}", UID).replace("{U}", &UID.replace('-', "_"))
    }

    #[test]
    fn the_outermost_container_is_the_one_of_this_machine() {
        for (path, want) in [
            ("/docker/{ID}/docker/{ID2}", "/docker/{ID}"),
            ("/docker/{ID}/kubelet.slice/podx/{ID2}", "/docker/{ID}"),
            ("/a.slice//docker-{ID}.scope/init.scope", "/a.slice//docker-{ID}.scope"),
            ("/system.slice/ssh.service", "-"),
            ("/", "-"),
        ] {
            let path = real(path);
            assert_eq!(text(outermost(path.as_bytes())), real(want), "{path}");
        }
    }

    #[test]
    fn a_removed_group_keeps_its_name() {
        let paths = [
            (0, ":/system.slice/foo.service (deleted)", "/system.slice/foo.service"),
            (1, "name=systemd:/user.slice/a.scope (deleted)", "/user.slice/a.scope"),
            (0, ":/system.slice/foo.service", "/system.slice/foo.service"),
            (0, ":/ (deleted)", "/"),
        ];
        for (id, entry, path) in paths {
            assert_eq!(path_of(entry.as_bytes()), Some(path.as_bytes()), "{entry}");
            let got = of_systemd([(id, entry.as_bytes())].into_iter());
            assert_eq!(got, Some(path.as_bytes()), "{entry}");
        }
        let docker = format!(":/system.slice/docker-{ID}.scope (deleted)");
        let found = path_of(docker.as_bytes()).and_then(container).expect("a container");
        assert_eq!((found.id.as_ref(), found.runtime), (ID.as_bytes(), Some("docker")));
    }

    /// Path; unit, user unit, slice, owner, session, machine.
    const SYSTEMD: &[(&str, [&str; 6])] = &[
        ("/", ["-", "-", "-.slice", "-", "-", "-"]),
        ("/init.scope", ["init.scope", "-", "-.slice", "-", "-", "-"]),
        ("/system.slice/ssh.service", ["ssh.service", "-", "system.slice", "-", "-", "-"]),
        (
            "/system.slice/system-getty.slice/getty@tty1.service",
            ["getty@tty1.service", "-", "system-getty.slice", "-", "-", "-"],
        ),
        (
            "/system.slice/systemd-udevd.service/udev",
            ["systemd-udevd.service", "-", "system.slice", "-", "-", "-"],
        ),
        (
            "/user.slice/user-1000.slice/session-3.scope",
            ["session-3.scope", "-", "user-1000.slice", "1000", "3", "-"],
        ),
        (
            "/user.slice/user-1000.slice/session-c2.scope",
            ["session-c2.scope", "-", "user-1000.slice", "1000", "c2", "-"],
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/init.scope",
            ["user@1000.service", "init.scope", "user-1000.slice", "1000", "-", "-"],
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-firefox-4242.scope",
            [
                "user@1000.service",
                "app-gnome-firefox-4242.scope",
                "user-1000.slice",
                "1000",
                "-",
                "-",
            ],
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.gnome.Terminal.slice/\
             vte-spawn-0d2f.scope",
            ["user@1000.service", "vte-spawn-0d2f.scope", "user-1000.slice", "1000", "-", "-"],
        ),
        (
            "/machine.slice/systemd-nspawn@deb\\x2d13.service/payload",
            ["systemd-nspawn@deb\\x2d13.service", "-", "machine.slice", "-", "-", "deb-13"],
        ),
        (
            "/machine.slice/machine-qemu\\x2d1\\x2dvm.scope/libvirt/emulator",
            ["machine-qemu\\x2d1\\x2dvm.scope", "-", "machine.slice", "-", "-", "qemu-1-vm"],
        ),
        // A unit that would clash with a file of the kernel's has a `_` before its name.
        ("/system.slice/_cpu.service", ["cpu.service", "-", "system.slice", "-", "-", "-"]),
        // Not of systemd's making.
        ("/docker/{ID}", ["-", "-", "-.slice", "-", "-", "-"]),
        ("/kubepods/burstable/pod{UID}/{ID}", ["-", "-", "-.slice", "-", "-", "-"]),
        ("/system.slice/a b.service", ["-", "-", "system.slice", "-", "-", "-"]),
        ("/user.slice/user-x.slice", ["-", "-", "user-x.slice", "-", "-", "-"]),
        ("/.service", ["-", "-", "-.slice", "-", "-", "-"]),
        ("", ["-", "-", "-.slice", "-", "-", "-"]),
    ];

    #[test]
    fn units_and_slices_of_systemd_are_found_in_paths() {
        for (path, want) in SYSTEMD {
            let path = real(path);
            let p = path.as_bytes();
            let owner = owner(p).map(|uid| uid.to_string());
            let got = [
                text(unit(p)),
                text(user_unit(p)),
                text(Some(slice(p))),
                text(owner),
                text(session(p)),
                text(machine(p)),
            ];
            assert_eq!(got, want.map(String::from), "{path}");
        }
    }

    /// Path; container, runtime, pod.
    const CONTAINERS: &[(&str, [&str; 3])] = &[
        // Docker with the systemd driver, with cgroupfs, in Kubernetes, inside another group
        ("/system.slice/docker-{ID}.scope", ["{ID}", "docker", "-"]),
        ("/docker/{ID}", ["{ID}", "docker", "-"]),
        ("/docker/{ID}/init", ["{ID}", "docker", "-"]),
        ("/docker/buildx/{ID}", ["{ID}", "docker", "-"]),
        (
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{U}.slice/docker-{ID}.scope",
            ["{ID}", "docker", "{UID}"],
        ),
        // Podman: of root, of a user, with cgroupfs, with its split groups; conmon is no container
        ("/machine.slice/libpod-{ID}.scope/container", ["{ID}", "podman", "-"]),
        ("/machine.slice/libpod-{ID}.scope", ["{ID}", "podman", "-"]),
        (
            "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container",
            ["{ID}", "podman", "-"],
        ),
        ("/libpod_parent/libpod-{ID}", ["{ID}", "podman", "-"]),
        ("/system.slice/app.service/libpod-payload-{ID}", ["{ID}", "podman", "-"]),
        ("/machine.slice/libpod-conmon-{ID}.scope", ["-", "-", "-"]),
        // containerd, by Kubernetes and by nerdctl
        (
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{U}.slice/\
             cri-containerd-{ID}.scope",
            ["{ID}", "containerd", "{UID}"],
        ),
        (
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{U}.slice/cri-containerd-{ID}.scope",
            ["{ID}", "containerd", "{UID}"],
        ),
        (
            "/system.slice/containerd.service/kubepods-burstable-pod{U}.slice:cri-containerd:{ID}",
            ["{ID}", "containerd", "{UID}"],
        ),
        ("/system.slice/nerdctl-{ID}.scope", ["{ID}", "containerd", "-"]),
        ("/default/{ID}", ["{ID}", "-", "-"]),
        // CRI-O
        (
            "/kubepods.slice/kubepods-pod{U}.slice/crio-{ID}.scope/container",
            ["{ID}", "cri-o", "{UID}"],
        ),
        ("/kubepods.slice/kubepods-pod{U}.slice/crio-conmon-{ID}.scope", ["-", "-", "{UID}"]),
        // Kubernetes with cgroupfs does not show the runtime; a static pod has a hash
        ("/kubepods/burstable/pod{UID}/{ID}", ["{ID}", "-", "{UID}"]),
        (
            "/kubepods/pod0123456789abcdef0123456789abcdef/{ID}",
            ["{ID}", "-", "0123456789abcdef0123456789abcdef"],
        ),
        ("/kubepods.slice/kubepods-burstable.slice", ["-", "-", "-"]),
        // Amazon ECS
        ("/ecs/0123456789abcdef0123456789abcdef/{ID}", ["{ID}", "docker", "-"]),
        // LXC and LXD: v2, older, oldest; its monitor is no container
        ("/lxc.payload.web-1", ["web-1", "lxc", "-"]),
        ("/lxc.payload.web-1/system.slice/cron.service", ["web-1", "lxc", "-"]),
        ("/lxc.payload/web-1/init.scope", ["web-1", "lxc", "-"]),
        ("/lxc/web-1/init.scope", ["web-1", "lxc", "-"]),
        ("/lxc.monitor.web-1", ["-", "-", "-"]),
        // Docker in LXC: the innermost one
        ("/lxc.payload.web-1/docker/{ID}", ["{ID}", "docker", "-"]),
        // systemd-nspawn, as a service and by hand; libvirt
        ("/machine.slice/systemd-nspawn@deb\\x2d13.service/payload", ["deb-13", "nspawn", "-"]),
        ("/machine.slice/machine-deb13.scope/payload", ["deb13", "nspawn", "-"]),
        ("/machine.slice/machine-lxc\\x2d77\\x2dweb.scope", ["lxc-77-web", "libvirt-lxc", "-"]),
        ("/machine.slice/machine-qemu\\x2d1\\x2dvm.scope/libvirt/emulator", ["-", "-", "-"]),
        // Amazon ECS without Docker: Fargate, and instances that ECS manages
        ("/ecs/{TASK}/{TASK}-2574839563", ["{TASK}-2574839563", "containerd", "-"]),
        ("/ecs/{TASK}/{TASK}-1", ["{TASK}-1", "containerd", "-"]),
        ("/ecs/{TASK}", ["-", "-", "-"]),
        ("/ecstasks.slice/ecstasks-{TASK}.slice/docker-{ID}.scope", ["{ID}", "docker", "-"]),
        // BuildKit: in dockerd with both drivers, by itself, in a container of Docker and of
        // Kubernetes
        ("/docker/buildkit/{BUILD}", ["{BUILD}", "buildkit", "-"]),
        ("/system.slice/docker-{BUILD}.scope", ["{BUILD}", "buildkit", "-"]),
        ("/buildkit/{BUILD}", ["{BUILD}", "buildkit", "-"]),
        ("/system.slice/buildkit.service/buildkit/{BUILD}", ["{BUILD}", "buildkit", "-"]),
        ("/docker/{ID}/buildkit/{BUILD}", ["{BUILD}", "buildkit", "-"]),
        ("/kubepods/besteffort/pod{UID}/{ID}/buildkit/{BUILD}", ["{BUILD}", "buildkit", "{UID}"]),
        ("/system.slice:docker:{BUILD}", ["{BUILD}", "buildkit", "-"]),
        ("/user.slice/{BUILD}", ["-", "-", "-"]),
        ("/system.slice/app-{BUILD}.scope", ["-", "-", "-"]),
        // Kubernetes inside Docker (kind, k3d, minikube): the outer one does not run the inner
        // container
        ("/docker/{ID2}/kubelet/kubepods/besteffort/pod{UID}/{ID}", ["{ID}", "-", "{UID}"]),
        ("/docker/{ID2}/kubepods/burstable/pod{UID}/{ID}", ["{ID}", "-", "{UID}"]),
        ("/system.slice/docker-{ID2}.scope/kubepods/pod{UID}/{ID}", ["{ID}", "-", "{UID}"]),
        (
            "/machine.slice/libpod-{ID2}.scope/container/kubelet/kubepods/pod{UID}/{ID}",
            ["{ID}", "-", "{UID}"],
        ),
        (
            "/docker/{ID2}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{U}.slice/cri-containerd-{ID}.scope",
            ["{ID}", "containerd", "{UID}"],
        ),
        (
            "/system.slice/docker-{ID2}.scope/kubepods.slice/kubepods-pod{U}.slice/docker-{ID}.scope",
            ["{ID}", "docker", "{UID}"],
        ),
        ("/docker/{ID2}/system.slice/containerd.service", ["{ID2}", "docker", "-"]),
        // Docker in Docker, and a directory of unknown make in a container
        ("/docker/{ID2}/docker/{ID}", ["{ID}", "docker", "-"]),
        ("/docker/{ID2}/work/{ID}", ["{ID}", "-", "-"]),
        ("/kubepods/pod{UID}/{ID2}/docker/{ID}", ["{ID}", "docker", "{UID}"]),
        ("/lxc.payload.web-1/work/{ID}", ["{ID}", "-", "-"]),
        // The namespaces of containerd
        ("/k8s.io/{ID}", ["{ID}", "containerd", "-"]),
        ("/moby/{ID}", ["{ID}", "docker", "-"]),
        ("/system.slice/containerd.service/{ID}", ["{ID}", "containerd", "-"]),
        (
            "/system.slice/k3s.service/kubepods-pod{U}.slice:cri-containerd:{ID}",
            ["{ID}", "containerd", "{UID}"],
        ),
        ("/kubepods-pod{U}.slice:crio:{ID}", ["{ID}", "cri-o", "{UID}"]),
        ("/machine.slice:libpod:{ID}", ["{ID}", "podman", "-"]),
        // CRI-O with cgroupfs, a pod of Podman, rootless Podman without systemd
        ("/kubepods/besteffort/pod{UID}/crio-{ID}", ["{ID}", "cri-o", "{UID}"]),
        ("/kubepods/besteffort/pod{UID}/crio-conmon-{ID}", ["-", "-", "{UID}"]),
        ("/libpod_parent/{ID2}/libpod-{ID}", ["{ID}", "podman", "-"]),
        (
            "/machine.slice/machine-libpod_pod_{ID2}.slice/libpod-{ID}.scope/container",
            ["{ID}", "podman", "-"],
        ),
        ("/user.slice/user-1000.slice/session-2.scope/libpod-{ID}", ["{ID}", "podman", "-"]),
        // A runtime that is not known here
        ("/system.slice/runc-{ID}.scope", ["{ID}", "-", "-"]),
        ("/system.slice/runc-conmon-{ID}.scope", ["-", "-", "-"]),
        // Kata, whose machine is outside of the pod
        ("/kata_overhead/{ID}", ["{ID}", "kata", "-"]),
        ("/kubepods/besteffort/pod{UID}/kata_{ID}", ["{ID}", "kata", "{UID}"]),
        // Cloud Foundry's Garden, Mesos, Nomad
        ("/garden/6f265890-5165-7fab-6b52-18d1", ["6f265890-5165-7fab-6b52-18d1", "garden", "-"]),
        ("/system.slice/garden.service/garden/{UID}", ["{UID}", "garden", "-"]),
        ("/mesos/{UID}", ["{UID}", "mesos", "-"]),
        ("/nomad.slice/share.slice/{UID}.web.scope", ["{UID}.web", "nomad", "-"]),
        ("/nomad.slice/reserve.slice/{UID}.web.scope", ["{UID}.web", "nomad", "-"]),
        ("/nomad/{UID}", ["{UID}", "nomad", "-"]),
        ("/nomad.slice/share.slice/docker-{ID}.scope", ["{ID}", "docker", "-"]),
        ("/system.slice/{UID}", ["-", "-", "-"]),
        // Proxmox, NixOS, old libvirt, rkt
        ("/lxc/101/ns/system.slice/cron.service", ["101", "lxc", "-"]),
        ("/machine.slice/container@web.service/system.slice", ["web", "nspawn", "-"]),
        ("/machine/web.libvirt-lxc", ["web", "libvirt-lxc", "-"]),
        ("/machine/vm.libvirt-qemu/emulator", ["-", "-", "-"]),
        ("/machine.slice/machine-rkt\\x2d7.scope", ["rkt-7", "rkt", "-"]),
        ("/lxc.monitor/web-1", ["-", "-", "-"]),
        // No container
        ("/", ["-", "-", "-"]),
        ("/system.slice/docker.service", ["-", "-", "-"]),
        ("/system.slice/docker-3f2a.scope", ["-", "-", "-"]),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/snap.firefox.firefox-1.scope",
            ["-", "-", "-"],
        ),
        ("/podman/pods", ["-", "-", "-"]),
    ];

    #[test]
    fn containers_of_each_runtime_are_found_in_paths() {
        for (path, want) in CONTAINERS {
            let path = real(path);
            let p = path.as_bytes();
            let c = container(p);
            let runtime = c.as_ref().and_then(|c| c.runtime);
            let got = [text(c.as_ref().map(|c| &c.id)), text(runtime), text(pod(p))];
            assert_eq!(got, want.map(real), "{path}");
        }
    }

    #[test]
    fn the_path_of_systemd_is_its_own_hierarchy_or_v2() {
        let of = |all: &[(u32, &'static [u8])]| of_systemd(all.iter().copied());
        assert_eq!(of(&[(0, b":/a.slice")]), Some(&b"/a.slice"[..]));
        assert_eq!(of(&[(1, b"name=systemd:/b"), (0, b":/b")]), Some(&b"/b"[..]));
        // In a container of an old host only one of them may show that.
        assert_eq!(of(&[(1, b"name=systemd:/"), (0, b":/docker")]), Some(&b"/docker"[..]));
        assert_eq!(of(&[(1, b"name=systemd:/")]), Some(&b"/"[..]));
        assert_eq!(of(&[(4, b"memory:/x")]), None);
        assert_eq!(path_of(b"cpu,cpuacct:/a:b"), Some(&b"/a:b"[..]));
    }
}
