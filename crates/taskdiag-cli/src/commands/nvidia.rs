//! The child of this program that asks NVIDIA's library what processes use of graphics processors.
//! `taskdiag::engine::procfs::nvidia` starts it and says why and how it answers.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::time::Instant;

use clap::{ArgMatches, Command};
use taskdiag::engine::procfs::nvidia;

use crate::exit::Exit;

/// The name of the subcommand.
const NAME: &str = "nvidia-helper";
/// The library of the driver.
const LIBRARY: &CStr = c"libnvidia-ml.so.1";
/// The largest number of devices, and of processes of each.
const DEVICES: c_uint = 64;
const PROCESSES: usize = 8192;

/// The options.
pub fn command() -> Command {
    Command::new(NAME).about("Ask NVIDIA's library; taskdiag starts this itself").hide(true)
}

/// There are no arguments.
pub fn from_matches(_: &ArgMatches) -> Result<(), Exit> {
    Ok(())
}

/// Names the helper to the library of this program.
pub fn through() {
    nvidia::through(|| {
        let mut command = std::process::Command::new("/proc/self/exe");
        command.arg(NAME);
        command
    });
}

type Device = *mut c_void;

/// `nvmlProcessInfo_v2_t`
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Process {
    pid: c_uint,
    memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlProcessUtilizationSample_t`
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sample {
    pid: c_uint,
    time_us: c_ulonglong,
    sm_percent: c_uint,
    memory_percent: c_uint,
    encoder_percent: c_uint,
    decoder_percent: c_uint,
}

/// `nvmlPciInfo_v3_t`
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Pci {
    old_bus_id: [u8; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    id: c_uint,
    subsystem: c_uint,
    bus_id: [u8; 32],
}

type Running = unsafe extern "C" fn(Device, *mut c_uint, *mut Process) -> c_int;

/// The functions of the library. Each returns 0 if it has done its work.
struct Nvml {
    count: unsafe extern "C" fn(*mut c_uint) -> c_int,
    handle: unsafe extern "C" fn(c_uint, *mut Device) -> c_int,
    minor: unsafe extern "C" fn(Device, *mut c_uint) -> c_int,
    pci: unsafe extern "C" fn(Device, *mut Pci) -> c_int,
    compute: Running,
    graphics: Option<Running>,
    samples: Option<unsafe extern "C" fn(Device, *mut Sample, *mut c_uint, c_ulonglong) -> c_int>,
}

/// The value of a memory that is not known (`NVML_VALUE_NOT_AVAILABLE`).
const UNKNOWN: c_ulonglong = c_ulonglong::MAX;

/// A function of the library.
fn function<F: Copy>(library: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the library is open, and its header says that the function has this type.
    unsafe {
        let found = libc::dlsym(library, name.as_ptr().cast::<c_char>());
        (!found.is_null()).then(|| std::mem::transmute_copy(&found))
    }
}

impl Nvml {
    /// `None`: there is no such library, or it does not work here.
    fn open() -> Option<Nvml> {
        let other = nvidia::other_library().map(OsString::into_vec);
        let name = other.map_or_else(|| Ok(LIBRARY.to_owned()), CString::new).ok()?;
        // SAFETY: the library is the system's, because this process has no environment that names
        // another one, or the user's own, who is not root.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return None;
        }
        let init: unsafe extern "C" fn() -> c_int = function(library, c"nvmlInit_v2")?;
        let nvml = Nvml {
            count: function(library, c"nvmlDeviceGetCount_v2")?,
            handle: function(library, c"nvmlDeviceGetHandleByIndex_v2")?,
            minor: function(library, c"nvmlDeviceGetMinorNumber")?,
            pci: function(library, c"nvmlDeviceGetPciInfo_v3")?,
            compute: function(library, c"nvmlDeviceGetComputeRunningProcesses_v3")?,
            graphics: function(library, c"nvmlDeviceGetGraphicsRunningProcesses_v3"),
            samples: function(library, c"nvmlDeviceGetProcessUtilization"),
        };
        // SAFETY: the function takes nothing.
        (unsafe { init() } == 0).then_some(nvml)
    }
    fn devices(&self) -> Vec<(Device, u32, String)> {
        let mut count = 0;
        // SAFETY: all that is filled in here lives across the calls.
        if unsafe { (self.count)(&raw mut count) } != 0 {
            return Vec::new();
        }
        let device = |index| {
            let (mut device, mut minor, mut pci) = (std::ptr::null_mut(), 0, Pci::default());
            // SAFETY: as above.
            let done = unsafe {
                (self.handle)(index, &raw mut device) == 0
                    && (self.minor)(device, &raw mut minor) == 0
                    && (self.pci)(device, &raw mut pci) == 0
            };
            // As the kernel writes it.
            let at = format!("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
            done.then_some((device, minor, at))
        };
        (0..count.min(DEVICES)).filter_map(device).collect()
    }
    /// Processes with their memory. `None`: the device does not say it.
    fn running(&self, device: Device) -> Option<HashMap<u32, Option<u64>>> {
        let mut all: HashMap<u32, Option<u64>> = HashMap::new();
        let mut infos = vec![Process::default(); PROCESSES];
        let mut any = false;
        for list in [Some(self.compute), self.graphics].into_iter().flatten() {
            let mut count = infos.len() as c_uint;
            // SAFETY: there is room for as many.
            if unsafe { list(device, &raw mut count, infos.as_mut_ptr()) } != 0 {
                continue;
            }
            any = true;
            for info in infos.iter().take(count as usize) {
                let memory = (info.memory != UNKNOWN).then_some(info.memory);
                // A process is in both lists with the same memory, and has a row for each instance.
                let known = all.entry(info.pid).or_insert(memory);
                *known = (*known).max(memory);
            }
        }
        any.then_some(all)
    }
    /// The samples after a moment, by process: the mean share of the time in which it ran. The
    /// other value is the moment of the last one. `None`: the device has none.
    fn shares(&self, device: Device, since: u64) -> Option<(HashMap<u32, f64>, u64)> {
        let samples = self.samples?;
        let mut found = vec![Sample::default(); PROCESSES];
        let mut count = found.len() as c_uint;
        /// There is none since then.
        const NOT_FOUND: c_int = 6;
        // SAFETY: there is room for as many.
        match unsafe { samples(device, found.as_mut_ptr(), &raw mut count, since) } {
            0 => found.truncate(count as usize),
            NOT_FOUND => found.clear(),
            _ => return None,
        }
        let mut sums: HashMap<u32, (f64, f64)> = HashMap::new();
        for s in &found {
            let (sum, n) = sums.entry(s.pid).or_default();
            (*sum, *n) = (*sum + f64::from(s.sm_percent.min(100)) / 100.0, *n + 1.0);
        }
        let last = found.iter().map(|s| s.time_us).max().unwrap_or(0).max(since);
        Some((sums.into_iter().map(|(pid, (sum, n))| (pid, sum / n)).collect(), last))
    }
}

/// The time of a device, and the parts of it in which processes ran, us.
#[derive(Default)]
struct Clock {
    last: Option<Instant>,
    since: u64,
    whole: f64,
    busy: HashMap<u32, f64>,
}

/// Ends this process with the one that asks, even while the library waits for the driver.
fn end_with_parent() {
    let wait = || {
        let mut input = libc::pollfd { fd: 0, events: 0, revents: 0 };
        // SAFETY: one descriptor, which lives across the calls. The end skips everything that could
        // wait.
        unsafe {
            while libc::poll(&raw mut input, 1, -1) < 1 {}
            libc::_exit(0)
        }
    };
    // Without a thread, it ends when the library comes back.
    let _ = std::thread::Builder::new().spawn(wait);
}

/// Answers until nobody asks any more.
pub fn run((): &()) -> Result<(), Exit> {
    end_with_parent();
    let Some(nvml) = Nvml::open() else { return Ok(()) };
    let devices = nvml.devices();
    let mut clocks: HashMap<u32, Clock> = HashMap::new();
    let (mut input, mut output) = (std::io::stdin(), std::io::stdout());
    let mut byte = [0];
    while input.read(&mut byte).is_ok_and(|n| n == 1) {
        let mut text = String::new();
        for (device, minor, at) in &devices {
            let Some(running) = nvml.running(*device) else { continue };
            let clock = clocks.entry(*minor).or_default();
            let has_shares = clock.update(nvml.shares(*device, clock.since));
            clock.busy.retain(|pid, _| running.contains_key(pid));
            let number = |n: Option<u64>| n.map_or_else(|| String::from("-"), |n| n.to_string());
            for (pid, memory) in &running {
                let busy = clock.busy.get(pid).copied().unwrap_or(0.0);
                let [busy, whole] = [busy, clock.whole].map(|us| has_shares.then_some(us as u64));
                let (memory, busy, whole) = (number(*memory), number(busy), number(whole));
                let _ = writeln!(text, "{pid} {minor} {at} {memory} {busy} {whole}");
            }
        }
        text.push('\n');
        if output.write_all(text.as_bytes()).and_then(|()| output.flush()).is_err() {
            break;
        }
    }
    Ok(())
}

impl Clock {
    /// Counts the time since the last samples. Returns whether the device has samples.
    fn update(&mut self, shares: Option<(HashMap<u32, f64>, u64)>) -> bool {
        let Some((shares, since)) = shares else { return false };
        let now = Instant::now();
        // The first samples are of an earlier time.
        if let Some(last) = self.last.replace(now) {
            let us = (now - last).as_secs_f64() * 1e6;
            self.whole += us;
            for (pid, share) in shares {
                *self.busy.entry(pid).or_default() += share * us;
            }
        }
        self.since = since;
        true
    }
}
