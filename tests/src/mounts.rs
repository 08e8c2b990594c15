//! File systems that only one test sees: the test runs in a thread with a separate mount namespace,
//! and so do all processes that it starts.

use std::path::Path;
use std::process::Command;

/// Runs a test in such a thread.
///
/// # Errors
/// The namespace cannot be made here, for example without root.
///
/// # Panics
/// If the test does.
pub fn in_own_mounts<T: Send>(test: impl FnOnce() -> T + Send) -> Result<T, String> {
    let alone = || {
        // SAFETY: the call has no pointers, and only this thread leaves the namespace.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            return Err(format!("unshare(CLONE_NEWNS): {}", std::io::Error::last_os_error()));
        }
        done("mount", &["--make-rprivate", "/"])?;
        Ok(test())
    };
    std::thread::scope(|s| match s.spawn(alone).join() {
        Ok(got) => got,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn done(program: &str, args: &[&str]) -> Result<(), String> {
    let out = Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    match out.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&out.stderr).trim())),
    }
}

fn made(dir: &Path, name: &str) -> Result<String, String> {
    let path = dir.join(name);
    std::fs::create_dir(&path).map_err(|e| format!("{name}: {e}"))?;
    Ok(path.to_str().expect("a plain path").to_owned())
}

/// A new btrfs in an image in this directory.
///
/// # Errors
/// If there is no btrfs, or no loop device.
pub fn btrfs(dir: &Path) -> Result<String, String> {
    let image = dir.join("image");
    let sized = std::fs::File::create(&image).and_then(|f| f.set_len(128 << 20));
    sized.map_err(|e| e.to_string())?;
    let image = image.to_str().expect("a plain path");
    done("mkfs.btrfs", &["-q", image])?;
    let at = made(dir, "btrfs")?;
    done("mount", &["-o", "loop", image, &at])?;
    Ok(at)
}

/// A new tmpfs in this directory.
///
/// # Errors
/// If it cannot be mounted.
pub fn tmpfs(dir: &Path, name: &str) -> Result<String, String> {
    let at = made(dir, name)?;
    done("mount", &["-t", "tmpfs", "tmpfs", &at])?;
    Ok(at)
}

/// Mounts an overlay of these directories, in the order of the kernel. Writes go to `upper`; its
/// sibling `work` is on the same file system.
///
/// # Errors
/// If there is no overlay.
pub fn overlay(dir: &Path, lower: &str, upper: &str, options: &str) -> Result<String, String> {
    let at = made(dir, "overlay")?;
    let data = made(Path::new(upper), "data")?;
    let work = made(Path::new(upper), "work")?;
    let options = format!("lowerdir={lower},upperdir={data},workdir={work}{options}");
    done("mount", &["-t", "overlay", "overlay", "-o", &options, &at])?;
    Ok(at)
}
