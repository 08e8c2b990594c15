//! Names of containers, from files that the tests lay out as each runtime does.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use taskdiag::Reason;
use taskdiag::containers::{ContainerNames, Containers, Named};
use tempfile::TempDir;

/// A secret that no answer may contain.
const TOKEN: &str = "s3cr3t-token-in-environment";
const UID: &str = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";

fn id(n: u32) -> String {
    format!("{n:064x}")
}

fn put(root: &Path, path: &str, text: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
    fs::write(path, text).expect("a file");
}

fn docker(name: &str, image: &str, labels: &str) -> String {
    format!(
        r#"{{"StreamConfig":{{}},"State":{{"Pid":7}},"Config":{{"Hostname":"h","Env":["TOKEN={TOKEN}"],
        "Cmd":["run","--token={TOKEN}"],"Image":"{image}","Labels":{{"x":"{TOKEN}"{labels}}}}},"Name":"/{name}"}}"#
    )
}

fn bundle(annotations: &str) -> String {
    format!(
        r#"{{"ociVersion":"1.1.0","process":{{"env":["TOKEN={TOKEN}"],"args":["{TOKEN}"]}},
        "annotations":{{"token":"{TOKEN}"{annotations}}},"linux":{{"resources":{{}}}}}}"#
    )
}

fn stored(id: &str, name: &str, image: &str) -> String {
    format!(
        r#"{{"id":"{id}","names":["{name}"],"image":"00","metadata":"{{\"image-name\":\"{image}\",\"name\":\"{name}\",\"labels\":\"{TOKEN}\"}}","flags":{{"Env":"{TOKEN}"}}}}"#
    )
}

fn of(named: &Named) -> String {
    match named {
        Ok(name) => String::from_utf8_lossy(name).into_owned(),
        Err(Reason::Absent) => String::from("-"),
        Err(reason) => format!("?{reason}"),
    }
}

fn line(names: &ContainerNames) -> String {
    let all =
        [&names.runtime, &names.name, &names.image, &names.pod_namespace, &names.pod_name].map(of);
    let line = all.join(" ");
    assert!(!line.contains(TOKEN), "{line}");
    assert!(!format!("{names:?}").contains(TOKEN));
    line
}

fn names(containers: &mut Containers, path: &str) -> String {
    containers.names(path.as_bytes()).map_or_else(|| String::from("none"), |n| line(&n))
}

#[test]
fn each_runtime_names_its_containers() {
    let dir = TempDir::new().expect("a directory");
    let root = dir.path();
    let [d, k, c, n, o, p, v, cri] = [1, 2, 3, 4, 5, 6, 7, 8].map(id);
    put(
        root,
        &format!("var/lib/docker/containers/{d}/config.v2.json"),
        docker("web", "nginx:1", ""),
    );
    let labels = r#","io.kubernetes.container.name":"app","io.kubernetes.pod.name":"web-0","io.kubernetes.pod.namespace":"shop""#;
    put(
        root,
        &format!("var/lib/docker/containers/{cri}/config.v2.json"),
        docker("k8s_app_web-0_shop_0", "sha256:00", labels),
    );
    let task = "run/containerd/io.containerd.runtime.v2.task";
    let annotations = r#","io.kubernetes.cri.container-name":"db","io.kubernetes.cri.image-name":"postgres:16",
        "io.kubernetes.cri.sandbox-name":"db-0","io.kubernetes.cri.sandbox-namespace":"shop""#;
    put(root, &format!("{task}/k8s.io/{c}/config.json"), bundle(annotations));
    put(root, &format!("{task}/default/{n}/config.json"), bundle(r#","nerdctl/name":"cache""#));
    put(
        root,
        &format!("run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/{k}/config.json"),
        bundle(annotations),
    );
    let annotations = r#","io.container.manager":"cri-o","io.kubernetes.container.name":"api","io.kubernetes.cri-o.ImageName":"quay.io/api:2",
        "io.kubernetes.pod.name":"api-x","io.kubernetes.pod.namespace":"prod""#;
    let storage = "var/lib/containers/storage/overlay-containers";
    put(root, &format!("{storage}/{o}/userdata/config.json"), bundle(annotations));
    put(
        root,
        &format!("{storage}/{p}/userdata/config.json"),
        bundle(r#","io.container.manager":"libpod""#),
    );
    put(
        root,
        &format!("{storage}/containers.json"),
        format!("[{}]", stored(&p, "pg", "docker.io/pg:1")),
    );
    put(
        root,
        &format!("{storage}/volatile-containers.json"),
        format!("[{}]", stored(&v, "job", "docker.io/job:1")),
    );
    fs::create_dir_all(root.join("var/lib/incus/containers/proj_c1")).expect("a directory");
    fs::create_dir_all(root.join(format!("var/log/pods/kube-system_proxy-7_{UID}"))).expect("one");
    let u = UID.replace('-', "_");
    let mut all = Containers::new(root);
    for (path, want) in [
        (format!("/system.slice/docker-{d}.scope"), "docker web nginx:1 - -"),
        (format!("/docker/{d}"), "docker web nginx:1 - -"),
        (format!("/kubepods/besteffort/pod{UID}/{cri}"), "docker app sha256:00 shop web-0"),
        (
            format!("/kubepods.slice/kubepods-pod{u}.slice/cri-containerd-{c}.scope"),
            "containerd db postgres:16 shop db-0",
        ),
        // The path names no runtime, so the first runtime that has the container counts.
        (format!("/kubepods/burstable/pod{UID}/{c}"), "containerd db postgres:16 shop db-0"),
        (format!("/kubepods/burstable/pod{UID}/{k}"), "containerd db postgres:16 shop db-0"),
        (format!("/kubepods/pod{UID}/{o}"), "cri-o api quay.io/api:2 prod api-x"),
        (format!("/system.slice/nerdctl-{n}.scope"), "containerd cache - - -"),
        (
            format!("/kubepods.slice/kubepods-pod{u}.slice/crio-{o}.scope"),
            "cri-o api quay.io/api:2 prod api-x",
        ),
        (format!("/machine.slice/libpod-{p}.scope/container"), "podman pg docker.io/pg:1 - -"),
        (format!("/machine.slice/libpod-{v}.scope"), "podman job docker.io/job:1 - -"),
        // For a pod without a known container, the directory of logs has the name.
        (format!("/kubepods/pod{UID}/{}", id(99)), "- - - kube-system proxy-7"),
        (format!("/kubepods.slice/kubepods-pod{u}.slice"), "- - - kube-system proxy-7"),
        (String::from("/lxc.payload.mail"), "lxc mail - - -"),
        (String::from("/lxc.payload.proj_c1"), "incus c1 - - -"),
        (String::from("/machine.slice/machine-deb\\x2d12.scope"), "nspawn deb-12 - - -"),
        (String::from("/machine.slice/systemd-nspawn@mail.service/payload"), "nspawn mail - - -"),
        // A container that no runtime knows.
        (format!("/docker/{}", id(98)), "docker - - - -"),
        (String::from("/system.slice/ssh.service"), "none"),
        (String::from("/"), "none"),
    ] {
        for _ in 0..2 {
            assert_eq!(names(&mut all, &path), want, "{path}");
        }
    }
}

#[test]
fn data_elsewhere_is_found_by_the_configuration() {
    let dir = TempDir::new().expect("a directory");
    let root = dir.path();
    let (d, p) = (id(1), id(2));
    put(root, "etc/docker/daemon.json", r#"{"log-driver":"local","data-root":"/data/docker"}"#);
    put(root, &format!("data/docker/containers/{d}/config.v2.json"), docker("web", "i", ""));
    put(root, "etc/containers/storage.conf", "[storage]\n# graphroot\ngraphroot = \"/data/c\"\n");
    put(root, "data/c/vfs-containers/containers.json", format!("[{}]", stored(&p, "pg", "pg:1")));
    // A link of root's to the directory of all data is followed.
    fs::create_dir_all(root.join("real/containers")).expect("a directory");
    put(root, &format!("real/containers/{}/config.v2.json", id(3)), docker("linked", "i", ""));
    fs::create_dir_all(root.join("var/lib")).expect("a directory");
    symlink(root.join("real"), root.join("var/lib/docker")).expect("a link");
    let mut all = Containers::new(root);
    assert_eq!(names(&mut all, &format!("/docker/{d}")), "docker web i - -");
    assert_eq!(names(&mut all, &format!("/docker/{}", id(3))), "docker linked i - -");
    assert_eq!(names(&mut all, &format!("/libpod_parent/libpod-{p}")), "podman pg pg:1 - -");
}

#[test]
fn a_renamed_container_has_its_new_name_and_an_ended_one_keeps_its_own() {
    let dir = TempDir::new().expect("a directory");
    let root = dir.path();
    let (d, p) = (id(1), id(2));
    let file = format!("var/lib/docker/containers/{d}/config.v2.json");
    let list = "var/lib/containers/storage/overlay-containers/containers.json";
    let mut all = Containers::new(root);
    let (docker_path, podman_path) = (format!("/docker/{d}"), format!("/libpod_parent/libpod-{p}"));
    for name in ["one", "two", "three"] {
        // Runtimes write a new file, and rename it.
        put(root, "new", docker(name, "i", ""));
        fs::create_dir_all(root.join(&file).parent().expect("one")).expect("a directory");
        fs::rename(root.join("new"), root.join(&file)).expect("it is renamed");
        put(root, list, format!("[{}]", stored(&p, name, "pg:1")));
        assert_eq!(names(&mut all, &docker_path), format!("docker {name} i - -"));
        assert_eq!(names(&mut all, &podman_path), format!("podman {name} pg:1 - -"));
    }
    fs::remove_dir_all(root.join("var")).expect("all is removed");
    assert_eq!(names(&mut all, &docker_path), "docker three i - -");
    assert_eq!(names(&mut all, &podman_path), "podman three pg:1 - -");
}

/// A home directory of a user in a root of its own. Its files belong to the user who runs the test.
struct Home {
    dir: TempDir,
    uid: u32,
}

impl Home {
    fn new() -> Home {
        let dir = TempDir::new().expect("a directory");
        let uid = 31_337;
        put(
            dir.path(),
            "etc/passwd",
            format!("root:x:0:0::/root:/bin/sh\nmallory:x:{uid}:{uid}::/home/mallory:/bin/sh\n"),
        );
        fs::create_dir_all(dir.path().join("home/mallory")).expect("a directory");
        Home { dir, uid }
    }
    fn list(&self) -> String {
        String::from(
            "home/mallory/.local/share/containers/storage/overlay-containers/containers.json",
        )
    }
    fn path(&self, id: &str) -> String {
        let uid = self.uid;
        format!(
            "/user.slice/user-{uid}.slice/user@{uid}.service/user.slice/libpod-{id}.scope/container"
        )
    }
    fn names(&self, id: &str) -> String {
        names(&mut Containers::new(self.dir.path()), &self.path(id))
    }
}

#[test]
fn containers_of_a_user_are_looked_for_in_the_home_directory_only() {
    let home = Home::new();
    let (root, p, d) = (home.dir.path(), id(1), id(2));
    put(root, &home.list(), format!("[{}]", stored(&p, "mine", "img:1")));
    assert_eq!(home.names(&p), "podman mine img:1 - -");
    // A group that a user named after a container of root's does not get its name.
    put(root, &format!("var/lib/docker/containers/{d}/config.v2.json"), docker("db", "i", ""));
    put(
        root,
        "var/lib/containers/storage/overlay-containers/containers.json",
        format!("[{}]", stored(&d, "db", "i")),
    );
    let uid = home.uid;
    let own = format!("/user.slice/user-{uid}.slice/user@{uid}.service/docker-{d}.scope");
    assert_eq!(names(&mut Containers::new(root), &own), "docker - - - -");
    assert_eq!(home.names(&d), "podman - - - -");
    put(
        root,
        &format!("home/mallory/.local/share/docker/containers/{d}/config.v2.json"),
        docker("own", "i:2", ""),
    );
    assert_eq!(names(&mut Containers::new(root), &own), "docker own i:2 - -");
    // A user whom no file names.
    let other = format!("/user.slice/user-5.slice/user@5.service/libpod-{p}.scope");
    assert_eq!(
        names(&mut Containers::new(root), &other),
        "podman ?unsupported ?unsupported ?unsupported ?unsupported"
    );
}

#[test]
fn a_group_that_another_user_could_make_does_not_get_the_name_of_a_container_of_root() {
    // SAFETY: it takes nothing and always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("SKIPPED: a directory of another user takes root to make");
    }
    let home = Home::new();
    let (root, d, p) = (home.dir.path(), id(1), id(2));
    put(root, &format!("var/lib/docker/containers/{d}/config.v2.json"), docker("db", "i", ""));
    put(root, &home.list(), format!("[{}]", stored(&p, "mine", "img:1")));
    for (service, uid, mode) in
        [("root", 0, 0o755), ("user", home.uid, 0o755), ("all", 0, 0o777), ("group", 0, 0o775)]
    {
        let dir = root.join(format!("sys/fs/cgroup/system.slice/{service}.service"));
        fs::create_dir_all(&dir).expect("a directory");
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).expect("its mode");
        let gid = if service == "root" { 0 } else { home.uid };
        std::os::unix::fs::chown(dir, Some(uid), Some(gid)).expect("root may");
    }
    let unknown = "docker ?unsupported ?unsupported ?unsupported ?unsupported";
    let mut all = Containers::new(root);
    for (path, want) in [
        (format!("/system.slice/root.service/docker-{d}.scope"), "docker db i - -"),
        // A group within that of the container, which its processes may own.
        (format!("/system.slice/root.service/docker-{d}.scope/x"), "docker db i - -"),
        // A service that systemd has delegated to its user.
        (format!("/system.slice/user.service/docker-{d}.scope"), "docker - - - -"),
        (format!("/system.slice/user.service/libpod-{p}.scope"), "podman mine img:1 - -"),
        (format!("/system.slice/all.service/docker-{d}.scope"), unknown),
        (format!("/system.slice/group.service/docker-{d}.scope"), unknown),
        // A group that was made within a container.
        (format!("/docker/{}/docker-{d}.scope", id(9)), "docker - - - -"),
        (format!("/docker/{}/kubepods/pod{UID}", id(9)), "docker - - - -"),
    ] {
        assert_eq!(names(&mut all, &path), want, "{path}");
    }
}

#[test]
fn groups_within_a_container_share_one_look_at_its_file() {
    let dir = TempDir::new().expect("a directory");
    let (root, d) = (dir.path(), id(1));
    let file = format!("var/lib/docker/containers/{d}/config.v2.json");
    put(root, &file, docker("web", "i", ""));
    let mut all = Containers::new(root);
    let path = |n: usize| format!("/docker/{d}/system.slice/unit{n}.service");
    let first = all.names(path(0).as_bytes()).expect("a container");
    fs::remove_file(root.join(file)).expect("it is removed");
    // The container ended, and its other control groups still have its known names.
    for n in 1..3 {
        let other = all.names(path(n).as_bytes()).expect("a container");
        assert_eq!(line(&other), line(&first));
    }
}

#[test]
fn files_of_a_hostile_user_are_refused() {
    let none = "podman ?unsupported ?unsupported ?unsupported ?unsupported";
    let p = id(1);
    let good = format!("[{}]", stored(&p, "shadow", "img:1"));
    let make = |what: &dyn Fn(&Path, &Path)| {
        let home = Home::new();
        let list = home.dir.path().join(home.list());
        fs::create_dir_all(list.parent().expect("one")).expect("a directory");
        put(home.dir.path(), "secret/overlay-containers/containers.json", &good);
        what(&list, home.dir.path());
        home
    };
    let begun = std::time::Instant::now();
    // A link to a file of root's, which would be readable as a list.
    let secret = "secret/overlay-containers/containers.json";
    let linked = make(&|list, root| symlink(root.join(secret), list).expect("a link"));
    assert_eq!(linked.names(&p), none);
    // A directory on the way is a link.
    let linked = make(&|list, root| {
        let storage = list.ancestors().nth(2).expect("one");
        fs::remove_dir_all(storage).expect("it is removed");
        symlink(root.join("secret"), storage).expect("a link");
    });
    assert_eq!(linked.names(&p), none);
    // The home directory itself is a link, which could lead to a server that does not answer.
    let linked = make(&|_, root| {
        let home = root.join("home/mallory");
        fs::rename(&home, root.join("elsewhere")).expect("it is moved");
        symlink(root.join("elsewhere"), home).expect("a link");
    });
    assert_eq!(linked.names(&p), none);
    // A second name of a file of root's.
    let second = make(&|list, root| fs::hard_link(root.join(secret), list).expect("a link"));
    assert_eq!(second.names(&p), none);
    let fifo = make(&|list, _| {
        let list = std::ffi::CString::new(list.to_str().expect("text")).expect("no NUL");
        // SAFETY: the path ends with a NUL.
        assert_eq!(unsafe { libc::mkfifo(list.as_ptr(), 0o600) }, 0);
    });
    assert_eq!(fifo.names(&p), none);
    let directory = make(&|list, _| fs::create_dir(list).expect("a directory"));
    assert_eq!(directory.names(&p), none);
    let sparse = make(&|list, _| {
        File::create(list).and_then(|f| f.set_len(1 << 30)).expect("a sparse file");
    });
    assert_eq!(sparse.names(&p), none.replace("unsupported", "truncated"));
    let odd = make(&|list, _| fs::write(list, "[[[[{\"id\":").expect("a file"));
    assert_eq!(odd.names(&p), none);
    let deep = make(&|list, _| fs::write(list, "[".repeat(1 << 19)).expect("a file"));
    assert_eq!(deep.names(&p), none);
    assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
    // Bytes that are not text, and bytes that control a terminal, are kept unchanged: the faces
    // escape them.
    let named = make(&|list, _| {
        let text = [&b"[{\"id\":\""[..], p.as_bytes(), b"\",\"names\":[\"a\xff\\u001b[31m\"]}]"];
        fs::write(list, text.concat()).expect("a file");
    });
    let mut all = Containers::new(named.dir.path());
    let names = all.names(named.path(&p).as_bytes()).expect("it is a container");
    assert_eq!(names.name.as_deref(), Ok(&b"a\xff\x1b[31m"[..]));
}

#[test]
fn a_file_without_rights_is_denied() {
    let dir = TempDir::new().expect("a directory");
    let (root, d) = (dir.path().to_owned(), id(1));
    put(&root, &format!("var/lib/docker/containers/{d}/config.v2.json"), docker("web", "i", ""));
    // The directory of the test itself is open, so that only this one can be the reason.
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).expect("it is open");
    let closed = root.join("var/lib/docker/containers");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("it is closed");
    let got = std::thread::spawn(move || {
        // SAFETY: the system call itself changes only this thread, and only if it is root's.
        unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
        names(&mut Containers::new(root), &format!("/docker/{d}"))
    });
    assert_eq!(got.join().expect("an answer"), "docker ?denied ?denied ?denied ?denied");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("it is open");
}

#[test]
fn names_in_logs_of_kubernetes_are_for_those_who_may_not_read_more() {
    let dir = TempDir::new().expect("a directory");
    let (root, c) = (dir.path(), id(7));
    put(root, &format!("var/log/containers/db-0_shop_postgres-{c}.log"), "");
    put(root, "var/log/containers/odd_name.log", "");
    let path = format!("/kubepods/pod{UID}/{c}");
    assert_eq!(names(&mut Containers::new(root), &path), "- postgres - shop db-0");
    // The file of the container exists, but cannot be parsed.
    put(root, &format!("var/lib/docker/containers/{c}/config.v2.json"), "{");
    assert_eq!(names(&mut Containers::new(root), &path), "- postgres ?unsupported shop db-0");
}
