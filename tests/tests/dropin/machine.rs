//! `taskdiag dropin`, in a mount namespace in which /etc and what ldconfig remembers are copies.

use std::process::Command;

use taskdiag_tests::{cli, skip};

const SCRIPT: &str = r#"
set -e
mount --make-rprivate /
mkdir -p "$DIR/etc" "$DIR/cache" "$DIR/bin" "$DIR/lib/taskdiag"
cp -a /etc/. "$DIR/etc/"
mount --bind "$DIR/etc" /etc
mkdir -p /var/cache/ldconfig
mount --bind "$DIR/cache" /var/cache/ldconfig
install -m755 "$PROGRAM" "$DIR/bin/taskdiag"
install -m644 "$LIBRARY" "$DIR/lib/taskdiag/libtaskdiag-procps.so"
/sbin/ldconfig
state() { /sbin/ldconfig -p; cd /etc; find . ! -name ld.so.cache | sort; cd "$DIR"; find bin lib | sort; }
state >"$DIR/before"
t="$DIR/bin/taskdiag"
echo "status before: $($t dropin status || echo "exit $?")"
(umask 077 && $t dropin install)
cd "$DIR/lib/taskdiag" && echo "modes: $(stat -c %a dropin dropin/libproc2.so.0 /etc/ld.so.conf.d/00-taskdiag.conf | xargs)"
echo "again: $($t dropin install 2>&1 || echo "exit $?")"
$t dropin status
echo "first: $(/sbin/ldconfig -p | grep -m1 libproc2.so.0)"
TASKDIAG_STATS=1 ps -eo pid= 2>"$DIR/said" | grep -cx " *$$"
grep -o 'in front of [^,]*' "$DIR/said"
# What is not about processes goes through to the real library.
uptime >"$DIR/uptime" && vmstat >"$DIR/vmstat" && echo "others work"
$t dropin remove
state >"$DIR/after"
cmp "$DIR/before" "$DIR/after" && echo "no trace"
echo "status after: $($t dropin status || echo "exit $?")"
"#;

#[test]
fn install_status_remove() {
    const NAME: &str = "dropin::machine::install_status_remove";
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return skip(NAME, "a mount namespace needs root");
    }
    let listed = Command::new("/sbin/ldconfig").arg("-p").output().expect("ldconfig runs");
    if !String::from_utf8_lossy(&listed.stdout).contains("libproc2.so.0 ") {
        return skip(NAME, "libproc2.so.0 is not installed");
    }
    // It is in /var/tmp, as all above it must belong to root.
    let dir = tempfile::tempdir_in("/var/tmp").expect("a temporary directory");
    let out = Command::new("unshare")
        .args(["--mount", "sh", "-c", SCRIPT])
        .env("DIR", dir.path())
        .env("PROGRAM", cli::taskdiag())
        .env("LIBRARY", cli::dropin())
        .env("TASKDIAG_ENGINE", "procfs")
        .output()
        .expect("unshare runs");
    let (said, errors) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{said}\n{errors}");
    let stub = dir.path().join("lib/taskdiag/dropin/libproc2.so.0");
    let stub = stub.display();
    for line in [
        "status before: the drop-in is not installed\nexit 1",
        &format!("installed: {stub} in front of /"),
        "modes: 755 644 644",
        "is installed already",
        &format!("installed: {stub}, and ps works with it"),
        &format!("=> {stub}"),
        "\n1\nin front of /",
        "others work",
        &format!("removed: {stub}"),
        "no trace",
        "status after: the drop-in is not installed\nexit 1",
    ] {
        assert!(said.contains(line), "{line:?} is not in:\n{said}\n{errors}");
    }
}
