//! `taskdiag dropin`, in a mount namespace in which /etc and the cache of ldconfig are copies.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use taskdiag_tests::{cli, is_root, skip};

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
# A library or a directory that is not for all, or not root's, is refused, and nothing changes.
chmod 700 "$DIR/lib"
echo "private: $($t dropin install 2>&1 || echo "exit $?")"
chmod 755 "$DIR/lib"
mkdir "$DIR/lib/taskdiag/dropin" && chown 65534 "$DIR/lib/taskdiag/dropin"
echo "foreign: $($t dropin install 2>&1 || echo "exit $?")"
rmdir "$DIR/lib/taskdiag/dropin"
state | cmp "$DIR/before" - && echo "nothing changed"
(umask 077 && $t dropin install)
cd "$DIR/lib/taskdiag" && echo "modes: $(stat -c %a dropin dropin/$SONAME /etc/ld.so.conf.d/00-taskdiag.conf | xargs)"
echo "again: $($t dropin install 2>&1 || echo "exit $?")"
$t dropin status
echo "first: $(/sbin/ldconfig -p | grep -m1 "$SONAME ")"
TASKDIAG_STATS=1 ps -eo pid= 2>"$DIR/said" | grep -cx " *$$"
grep -o 'in front of [^,]*' "$DIR/said"
# What is not about processes goes through to the real library.
uptime >"$DIR/uptime" && vmstat >"$DIR/vmstat" && echo "others work"
# A library that comes later is not covered, which is said.
mv "dropin/$SONAME" later && /sbin/ldconfig
echo "later: $($t dropin status 2>&1 || echo "exit $?")"
mv later "dropin/$SONAME" && /sbin/ldconfig
$t dropin remove
state >"$DIR/after"
cmp "$DIR/before" "$DIR/after" && echo "no trace"
echo "status after: $($t dropin status || echo "exit $?")"
# An empty file of the linker, and one of somebody else.
: >/etc/ld.so.conf.d/00-taskdiag.conf
echo "empty: $($t dropin status 2>&1 || echo "exit $?") $($t dropin remove)"
echo /usr/lib >/etc/ld.so.conf.d/00-taskdiag.conf
echo "not ours: $($t dropin remove 2>&1 || echo "exit $?")"
rm /etc/ld.so.conf.d/00-taskdiag.conf
# If ldconfig fails, it is removed nevertheless.
$t dropin install
mount --bind /bin/false /sbin/ldconfig
echo "no ldconfig: $($t dropin remove 2>&1 || echo "exit $?") $($t dropin status)"
umount /sbin/ldconfig
ps -eo pid= | grep -qx " *$$" && echo "ps works before ldconfig"
/sbin/ldconfig
state >"$DIR/after"
cmp "$DIR/before" "$DIR/after" && echo "no trace again"
"#;

#[test]
fn the_drop_in_is_installed_shown_and_removed() {
    const NAME: &str = "dropin::machine::the_drop_in_is_installed_shown_and_removed";
    if !is_root() {
        return skip(NAME, "a mount namespace needs root");
    }
    let listed = Command::new("/sbin/ldconfig").arg("-p").output().expect("ldconfig runs");
    let listed = String::from_utf8_lossy(&listed.stdout);
    let is_listed = |name: &&str| listed.contains(&format!("{name} "));
    let Some(soname) = ["libproc2.so.1", "libproc2.so.0"].into_iter().find(is_listed) else {
        return skip(NAME, "neither libproc2.so.0 nor libproc2.so.1 is installed");
    };
    // The directory is in /var/tmp, because all directories above it must belong to root.
    let dir = tempfile::tempdir_in("/var/tmp").expect("a temporary directory");
    // All users must be able to read the library.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("ours");
    let out = Command::new("unshare")
        .args(["--mount", "sh", "-c", SCRIPT])
        .env("DIR", dir.path())
        .env("SONAME", soname)
        .env("PROGRAM", cli::taskdiag())
        .env("LIBRARY", cli::dropin())
        // The library must be found where it is installed.
        .env_remove("TASKDIAG_PROCPS_LIB")
        .env("TASKDIAG_ENGINE", "procfs")
        .output()
        .expect("unshare runs");
    let (said, errors) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{said}\n{errors}");
    let stubs = dir.path().join("lib/taskdiag/dropin");
    let stub = stubs.join(soname);
    let (stubs, stub) = (stubs.display(), stub.display());
    for line in [
        "status before: the drop-in is not installed\nexit 1",
        &format!("installed: {stub} before /"),
        "lib: only some users may read it, and the programs of all others would not start",
        "taskdiag/dropin: users other than root may write to it",
        "nothing changed",
        "modes: 755 644 644",
        "is installed already",
        &format!("installed: {stub}, and ps works with it"),
        &format!("=> {stub}"),
        "\n1\nin front of /",
        "others work",
        &format!("for {soname}: it came later, so run 'taskdiag dropin remove' and then"),
        &format!("removed: {stubs}"),
        "no trace",
        "status after: the drop-in is not installed\nexit 1",
        "00-taskdiag.conf names no directory: run 'taskdiag dropin remove'\nexit 4",
        " removed: /etc/ld.so.conf.d/00-taskdiag.conf, which named no directory\n",
        "not ours: taskdiag: /etc/ld.so.conf.d/00-taskdiag.conf: taskdiag has not written this",
        "no ldconfig: taskdiag: /sbin/ldconfig: exit status: 1\nexit 4 the drop-in is not installed\n",
        "ps works before ldconfig",
        "no trace again",
    ] {
        assert!(said.contains(line), "{line:?} is not in:\n{said}\n{errors}");
    }
}
