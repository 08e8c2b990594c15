//! Recordings: round trips, torn and damaged files, the index, two writers, removal of old files.

#![cfg(feature = "record")]

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use taskdiag::recording::{Options, Recording, Writer};
use taskdiag::wire::{Done, Info, StreamWriter, build};
use taskdiag::{Base, Error, Snapshot, Stat};

const EVERY: Duration = Duration::from_secs(10);
/// The moment used in the tests: 2026-11-22 at 03:10:00 UTC.
const BEGIN: u64 = 1_795_317_000;

fn time(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// An answer at this second with this many tasks, some of which have been active since the previous
/// one.
fn snapshot(second: u64, tasks: u32) -> Snapshot {
    let mut w = StreamWriter::new();
    let head = StreamWriter::blank_info();
    w.info(&build!(Info {
        realtime_ns: second * 1_000_000_000,
        boottime_ns: (second - BEGIN / 2) * 1_000_000_000,
        ..head
    }));
    for pid in 1..=tasks {
        w.begin_task(pid, pid);
        let mut base = Base::new();
        (base.valid, base.ppid) = (Base::ALL_VALID, pid / 2);
        base.start_time_ns = u64::from(pid).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        w.put(&base);
        let mut stat = Stat::new();
        stat.valid = Stat::ALL_VALID;
        stat.utime_ns = if pid % 7 == 0 { second * u64::from(pid) } else { u64::from(pid) };
        w.put(&stat);
        w.end_task();
    }
    Snapshot::parse(w.finish(Done::default())).expect("it is whole")
}

fn bytes(snapshot: &Snapshot) -> &[u8] {
    snapshot.stream().bytes()
}

/// A directory for a recording, which does not exist yet.
struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Dir {
        Dir(tempfile::tempdir().expect("there is room"))
    }
    fn path(&self) -> PathBuf {
        self.0.path().join("recording")
    }
    /// The files whose names have this ending.
    fn files(&self, end: &str) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = fs::read_dir(self.path())
            .expect("it is there")
            .map(|e| e.expect("it is there").path())
            .filter(|p| p.extension().is_some_and(|e| e == end))
            .collect();
        all.sort();
        all
    }
    fn data(&self) -> PathBuf {
        self.files("tdr").pop().expect("there is a day file")
    }
    fn index(&self) -> PathBuf {
        self.data().with_extension("idx")
    }
}

fn writer(dir: &Dir) -> Writer {
    Writer::open(dir.path(), Options::new(EVERY)).expect("it opens")
}

/// Records the seconds, one frame for each.
fn record(dir: &Dir, seconds: impl IntoIterator<Item = u64>, tasks: u32) {
    let mut writer = writer(dir);
    for second in seconds {
        writer.append(&snapshot(second, tasks)).expect("it is written");
    }
}

/// The seconds of the frames of a recording. Each frame is compared with the answer that was
/// written.
fn seconds(dir: &Dir, tasks: u32) -> Vec<u64> {
    let recording = Recording::open(dir.path()).expect("it opens");
    let frames = recording.iter().map(|frame| {
        let frame = frame.expect("it is whole");
        let second = frame.info.time.duration_since(UNIX_EPOCH).expect("it is later").as_secs();
        assert_eq!(bytes(&frame.snapshot), bytes(&snapshot(second, tasks)), "{second}");
        second
    });
    frames.collect()
}

fn every(n: u64) -> impl Iterator<Item = u64> {
    (0..n).map(|i| BEGIN + 10 * i)
}

#[test]
fn frames_come_back_by_number_and_by_time() {
    let dir = Dir::new();
    record(&dir, every(200), 300);
    assert_eq!(seconds(&dir, 300), every(200).collect::<Vec<_>>());
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&dir.path()), mode(&dir.data()) & 0o007), (0o700, 0));
    assert!(dir.data().ends_with("2026-11-22.000.tdr"), "{:?}", dir.data());

    let recording = Recording::open(dir.path()).expect("it opens");
    assert_eq!((recording.len(), recording.damage()), (200, &[][..]));
    let at = |t| recording.at(t).expect("it is whole").map(|f| f.number);
    assert_eq!(at(time(BEGIN) - Duration::from_nanos(1)), None);
    assert_eq!(at(time(BEGIN)), Some(0));
    assert_eq!(at(time(BEGIN + 9)), Some(0));
    assert_eq!(at(time(BEGIN + 1000)), Some(100));
    assert_eq!(at(time(BEGIN + 1_000_000)), Some(199));
    // In any order, which needs other key frames.
    for number in [199, 0, 61, 60, 120, 3, 180, 62] {
        let frame = recording.read(number).expect("it is whole");
        let want = snapshot(BEGIN + 10 * number as u64, 300);
        assert_eq!(bytes(&frame.snapshot), bytes(&want), "{number}");
        assert_eq!((frame.info.tasks, frame.info.every), (300, EVERY));
        assert_eq!(frame.info.begins, number == 0);
    }
    let e = recording.read(200).expect_err("there is none");
    assert!(e.to_string().contains("there are 200"), "{e}");
    // A seventh of the tasks changed. Whole, a frame has 60,000 bytes.
    let stored = |n| recording.info(n).expect("it is there").stored_bytes;
    assert!(stored(1) < 2000, "{} bytes", stored(1));
    // One day file alone is a recording, too.
    assert_eq!(Recording::open(dir.data()).expect("it opens").len(), 200);
}

#[test]
fn gaps_are_known() {
    let dir = Dir::new();
    record(&dir, [0, 10, 20, 45, 145, 155].map(|s| BEGIN + s), 3);
    record(&dir, [BEGIN + 160], 3);
    let recording = Recording::open(dir.path()).expect("it opens");
    let gaps: Vec<_> = (0..recording.len()).map(|n| recording.gap_before(n)).collect();
    let gap = Some(Duration::from_secs(100));
    assert_eq!(gaps, [None, None, None, None, gap, None, None]);
    let begins: Vec<_> = recording.infos().map(|i| i.begins).collect();
    assert_eq!(begins, [true, false, false, false, false, false, true]);
    let last = recording.info(6).expect("it is there");
    assert!(!last.is_stale_at(time(BEGIN + 185)) && last.is_stale_at(time(BEGIN + 186)));
}

#[test]
fn a_tail_cut_at_any_byte_loses_the_last_frame_only() {
    let dir = Dir::new();
    record(&dir, every(4), 20);
    let before = fs::metadata(dir.data()).expect("it is there").len();
    record(&dir, [BEGIN + 40], 20);
    let (data, index) = (fs::read(dir.data()).expect("read"), fs::read(dir.index()).expect("read"));
    let whole: Vec<u64> = every(5).collect();
    for len in before..data.len() as u64 {
        // By turns with the index that has the frame, with the previous index, and without one.
        let entries = [5, 4, 0][len as usize % 3];
        fs::write(dir.data(), &data[..len as usize]).expect("write");
        fs::write(dir.index(), &index[..64 * entries]).expect("write");
        assert_eq!(seconds(&dir, 20), whole[..4], "{len} bytes, {entries} entries");
        let recording = Recording::open(dir.path()).expect("it opens");
        let torn: Vec<_> = recording.damage().iter().map(|d| (d.at, d.bytes, d.is_tail)).collect();
        let cut = len - before;
        assert_eq!(torn, if cut == 0 { vec![] } else { vec![(before, cut, true)] }, "{len}");
        // The next writer repairs it and continues.
        let mut next = writer(&dir);
        assert_eq!(next.repaired().map(|r| r.bytes), (cut > 0).then_some(cut), "{len}");
        next.append(&snapshot(BEGIN + 40, 20)).expect("it is written");
        drop(next);
        assert_eq!(seconds(&dir, 20), whole, "{len}");
        let recording = Recording::open(dir.path()).expect("it opens");
        assert_eq!(recording.damage(), []);
        assert_eq!(fs::metadata(dir.index()).expect("it is there").len(), 5 * 64);
    }
}

#[test]
fn a_changed_byte_in_the_last_frame_loses_no_other() {
    let dir = Dir::new();
    record(&dir, every(3), 20);
    let before = fs::metadata(dir.data()).expect("it is there").len() as usize;
    record(&dir, [BEGIN + 30], 20);
    let data = fs::read(dir.data()).expect("read");
    let data_len = u32::from_le_bytes(data[before + 44..before + 48].try_into().expect("4 bytes"));
    let padding = before + 64 + data_len as usize;
    for index in [true, false] {
        if !index {
            fs::remove_file(dir.index()).expect("remove");
        }
        for at in before..data.len() {
            let mut bad = data.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(dir.data(), &bad).expect("write");
            let is_lost = at < padding;
            assert_eq!(seconds(&dir, 20).len(), if is_lost { 3 } else { 4 }, "byte {at}");
            let recording = Recording::open(dir.path()).expect("it opens");
            assert_eq!(recording.damage().len(), usize::from(is_lost), "byte {at}");
            assert!(recording.damage().iter().all(|d| d.is_tail), "byte {at}");
        }
    }
}

#[test]
fn damage_in_the_middle_leaves_the_others() {
    let dir = Dir::new();
    // Three writers, so three key frames.
    for n in 0..3 {
        record(&dir, (0..4).map(|i| BEGIN + 40 * n + 10 * i), 20);
    }
    let data = fs::read(dir.data()).expect("read");
    let index = fs::read(dir.index()).expect("read");
    let place =
        |n: usize| u64::from_le_bytes(index[64 * n + 8..64 * n + 16].try_into().expect("8"));
    let key_of = |n: usize| n / 4 * 4;
    for bad in 0..11 {
        for (offset, is_head) in [(0, true), (30, true), (64, false), (80, false)] {
            let mut changed = data.clone();
            changed[place(bad) as usize + offset] ^= 0x55;
            fs::write(dir.data(), &changed).expect("write");
            for has_index in [true, false] {
                match has_index {
                    true => fs::write(dir.index(), &index).expect("write"),
                    false => fs::remove_file(dir.index()).expect("remove"),
                }
                let recording = Recording::open(dir.path()).expect("it opens");
                // The head of a frame is looked at where there is no index.
                let is_skipped = is_head && !has_index;
                assert_eq!(recording.damage().len(), usize::from(is_skipped), "{bad} {offset}");
                let read: Vec<u64> = recording
                    .iter()
                    .filter_map(Result::ok)
                    .map(|f| f.info.time.duration_since(UNIX_EPOCH).expect("later").as_secs())
                    .collect();
                let is_readable =
                    |n: usize| (n != bad && key_of(n) != bad) || (is_head && has_index);
                let want: Vec<u64> =
                    (0..12).filter(|n| is_readable(*n)).map(|n| BEGIN + 10 * n as u64).collect();
                assert_eq!(read, want, "frame {bad}, byte {offset}, index {has_index}");
            }
        }
    }
    // The error of a reader that meets a damaged frame names the frame.
    let mut changed = data.clone();
    changed[place(4) as usize + 70] ^= 1;
    fs::write(dir.data(), &changed).expect("write");
    let recording = Recording::open(dir.path()).expect("it opens");
    let e = recording.read(5).expect_err("its key frame is damaged");
    assert!(matches!(e, Error::Recording(_)), "{e:?}");
    assert!(e.to_string().contains("is damaged"), "{e}");
}

#[test]
fn an_index_is_only_a_help() {
    let (dir, other) = (Dir::new(), Dir::new());
    record(&dir, every(70), 20);
    record(&other, every(70).map(|s| s + 1), 20);
    let index = fs::read(dir.index()).expect("read");
    assert_eq!(index.len(), 70 * 64);
    let mut holed = index.clone();
    holed[64 * 30 + 20] ^= 1;
    let mut shuffled = index.clone();
    shuffled.rotate_left(64);
    let foreign = fs::read(other.index()).expect("read");
    let cut = index[..64 * 50 + 7].to_vec();
    let indexes = [
        index.clone(),
        holed,
        shuffled,
        foreign,
        cut,
        vec![],
        vec![0; 5000],
        [&index[..], &index].concat(),
    ];
    for (n, bytes) in indexes.iter().enumerate() {
        fs::write(dir.index(), bytes).expect("write");
        assert_eq!(seconds(&dir, 20).len(), 70, "index {n}");
        // A writer makes it whole again.
        drop(writer(&dir));
        assert_eq!(fs::read(dir.index()).expect("read"), index, "index {n}");
    }
}

#[test]
fn there_is_one_writer() {
    let dir = Dir::new();
    let first = writer(&dir);
    let e = Writer::open(dir.path(), Options::new(EVERY)).expect_err("there is another");
    let text = e.to_string();
    let pid = format!("(process {})", std::process::id());
    assert!(text.contains(&pid) && text.contains("another writer"), "{text}");
    // A reader does not mind.
    drop(Recording::open(dir.path()).expect_err("there is no frame yet"));
    drop(first);
    record(&dir, every(1), 3);
    assert_eq!(seconds(&dir, 3).len(), 1);
}

#[test]
fn nothing_of_others_is_written_to() {
    let opened = |dir: &Dir| Writer::open(dir.path(), Options::new(EVERY)).map(drop);
    let refused = |dir: &Dir| opened(dir).expect_err("it is refused").to_string();
    let dir = Dir::new();
    record(&dir, every(2), 3);
    for mode in [0o770, 0o707, 0o1777] {
        fs::set_permissions(dir.path(), Permissions::from_mode(mode)).expect("it is ours");
        let e = opened(&dir).expect_err("others may write to it");
        assert!(matches!(&e, Error::Recording(why) if why.contains("chmod go-w")), "{e:?}");
    }
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("it is ours");
    // Links do not lead the writer to other files.
    let victim = dir.0.path().join("victim");
    fs::write(&victim, "before").expect("write");
    for name in [dir.path().join("writer.lock"), dir.data(), dir.index()] {
        let aside = dir.0.path().join("aside");
        fs::rename(&name, &aside).expect("rename");
        symlink(&victim, &name).expect("a link");
        assert!(refused(&dir).contains("is a symbolic link"));
        assert_eq!(fs::read_to_string(&victim).expect("read"), "before");
        fs::rename(&aside, &name).expect("rename");
    }
    // A pipe in place of a file does not block the reader.
    let lock = dir.path().join("writer.lock");
    fs::remove_file(&lock).expect("remove");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &lock, mode).expect("a pipe");
    assert!(refused(&dir).contains("not a regular file"));
    fs::remove_file(&lock).expect("remove");
    if rustix::process::geteuid().is_root() {
        for path in [dir.data(), dir.index(), dir.path()] {
            chown(&path, Some(65534), None).expect("root may");
            assert!(refused(&dir).contains("belongs to another user (uid 65534)"));
            chown(&path, Some(0), None).expect("root may");
        }
    }
    opened(&dir).expect("all is ours again");
    assert_eq!(seconds(&dir, 3).len(), 2);
}

#[test]
fn old_days_are_removed() {
    const DAY: u64 = 86_400;
    let dir = Dir::new();
    let mut options = Options::new(EVERY);
    options.keep = Some(Duration::from_secs(2 * DAY));
    let mut writer = Writer::open(dir.path(), options).expect("it opens");
    fs::write(dir.path().join("2001-01-01.txt"), "a file of someone else").expect("write");
    let mut removed = Vec::new();
    for day in 0..6 {
        for hour in [0, 12] {
            let second = BEGIN + DAY * day + 3600 * hour;
            removed.extend(writer.append(&snapshot(second, 5)).expect("written").removed);
        }
    }
    // The day of the last frame, the previous day, and days that ended less than two days ago.
    let names: Vec<_> =
        dir.files("tdr").iter().map(|p| p.file_name().expect("it has").to_owned()).collect();
    assert_eq!(names, ["2026-11-25.000.tdr", "2026-11-26.000.tdr", "2026-11-27.000.tdr"]);
    assert_eq!((removed.len(), dir.files("idx").len()), (3, 3));
    assert!(dir.path().join("2001-01-01.txt").exists());
    drop(writer);
    assert_eq!(seconds(&dir, 5).len(), 6);
}

#[test]
fn a_recording_is_never_larger_than_it_may_be() {
    let dir = Dir::new();
    let mut options = Options::new(EVERY);
    options.max_bytes = Some(100_000);
    let mut writer = Writer::open(dir.path(), options).expect("it opens");
    let on_disk = || -> u64 {
        let of =
            |end| dir.files(end).iter().map(|p| p.metadata().expect("there").len()).sum::<u64>();
        of("tdr") + of("idx")
    };
    let mut removed = 0;
    for second in every(600) {
        removed += writer.append(&snapshot(second, 200)).expect("it is written").removed.len();
        assert!(on_disk() <= 100_000, "{} bytes", on_disk());
        assert_eq!(writer.bytes(), on_disk());
    }
    drop(writer);
    assert!(removed > 3, "{removed}");
    // The newest frames are complete, and they take most of the room.
    let left = seconds(&dir, 200);
    let newest: Vec<u64> = every(600).skip(600 - left.len()).collect();
    assert_eq!(left, newest);
    assert!(on_disk() > 80_000, "{} bytes", on_disk());

    options.max_bytes = Some(1000);
    let small = Dir::new();
    let mut writer = Writer::open(small.path(), options).expect("it opens");
    let e = writer.append(&snapshot(BEGIN, 3000)).expect_err("it does not fit");
    assert!(matches!(e, Error::Recording(_)) && e.to_string().contains("--max-size"), "{e}");
}

#[test]
fn days_turn_and_clocks_go_back() {
    let dir = Dir::new();
    // 2026-11-22 ends 74,999 s after BEGIN.
    let midnight = BEGIN + 75_000;
    assert_eq!(midnight % 86_400, 0);
    record(&dir, [midnight - 10, midnight, midnight + 10, midnight - 3600, midnight - 3590], 4);
    let names: Vec<_> =
        dir.files("tdr").iter().map(|p| p.file_name().expect("it has").to_owned()).collect();
    assert_eq!(names, ["2026-11-22.000.tdr", "2026-11-23.000.tdr"]);
    assert_eq!(seconds(&dir, 4).len(), 5);
    let recording = Recording::open(dir.path()).expect("it opens");
    // The last write counts.
    assert_eq!(recording.find(time(midnight - 3595)), Some(3));
    assert_eq!(recording.find(time(midnight + 60)), Some(4));
    assert_eq!(recording.find(time(midnight - 3601)), None);
}

#[test]
fn files_may_be_removed_while_it_is_written() {
    let dir = Dir::new();
    let mut writer = writer(&dir);
    writer.append(&snapshot(BEGIN, 4)).expect("it is written");
    fs::remove_file(dir.data()).expect("remove");
    writer.append(&snapshot(BEGIN + 10, 4)).expect("it is written to another file");
    assert_eq!(seconds(&dir, 4), [BEGIN + 10]);
    fs::remove_dir_all(dir.path()).expect("remove");
    let e = writer.append(&snapshot(BEGIN + 20, 4)).expect_err("there is no directory");
    assert!(matches!(&e, Error::Recording(why) if why.contains("start again")), "{e:?}");
}

/// `> FILE` and copytruncate of logrotate cut files in this way.
#[test]
fn a_day_file_that_somebody_cuts_loses_no_later_frame() {
    for left in [0, 100, 1000] {
        let dir = Dir::new();
        let mut writer = writer(&dir);
        for second in 0..5 {
            writer.append(&snapshot(BEGIN + second, 20)).expect("it is written");
        }
        let file = OpenOptions::new().write(true).open(dir.data()).expect("it is there");
        file.set_len(left).expect("it is shorter");
        for second in 5..9 {
            writer.append(&snapshot(BEGIN + second, 20)).expect("it is written");
        }
        drop(writer);
        let recording = Recording::open(dir.path()).expect("it opens");
        let times: Vec<u64> = recording
            .iter()
            .filter_map(Result::ok)
            .map(|f| f.info.time.duration_since(UNIX_EPOCH).expect("later").as_secs() - BEGIN)
            .collect();
        assert_eq!(times[times.len().saturating_sub(4)..], [5, 6, 7, 8], "{left}: {times:?}");
    }
}

#[test]
fn a_path_without_a_recording_is_an_error() {
    let dir = Dir::new();
    fs::create_dir(dir.path()).expect("create");
    let e = Recording::open(dir.path()).expect_err("it is empty");
    assert!(e.to_string().contains("taskdiag record"), "{e}");
    let e = Recording::open(dir.path().join("no")).expect_err("there is none");
    assert!(matches!(e, Error::Io { .. }), "{e:?}");
    // A foreign file with the name of a day file is neither read nor written to.
    let foreign = dir.path().join("2030-01-01.000.tdr");
    let noise: Vec<u8> = (0..5000u32).map(|n| ((n * n) >> 3) as u8).collect();
    fs::write(&foreign, &noise).expect("write");
    let recording = Recording::open(dir.path()).expect("it opens");
    assert!(recording.is_empty() && !recording.damage().is_empty());
    record(&dir, every(2), 4);
    assert_eq!(fs::read(&foreign).expect("read"), noise);
    assert_eq!(seconds(&dir, 4).len(), 2);
    // A file of a later version is not written to either.
    let dir = Dir::new();
    record(&dir, every(2), 4);
    let file = OpenOptions::new().read(true).write(true).open(dir.data()).expect("open");
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0).expect("read");
    head[12] = 2;
    let crc = crc32(&head[12..]);
    head[8..12].copy_from_slice(&crc.to_le_bytes());
    file.write_all_at(&head, 0).expect("write");
    let e = Recording::open(dir.path()).expect_err("it is newer");
    assert!(e.to_string().contains("version 2"), "{e}");
    let before = fs::read(dir.data()).expect("read");
    record(&dir, [BEGIN + 20], 4);
    assert_eq!(fs::read(&dir.files("tdr")[0]).expect("read"), before);
    assert_eq!(dir.files("tdr").len(), 2);
}

#[test]
fn no_file_makes_a_reader_fail() {
    let dir = Dir::new();
    record(&dir, every(6), 10);
    let (data, index) = (fs::read(dir.data()).expect("read"), fs::read(dir.index()).expect("read"));
    let places: Vec<usize> = index
        .chunks_exact(64)
        .map(|h| u64::from_le_bytes(h[8..16].try_into().expect("8 bytes")) as usize)
        .collect();
    let mut seed = 7u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let odd = [0, 1, 8, 63, 64, 65, 1 << 31, u32::MAX as u64, 1 << 62, u64::MAX - 7, u64::MAX];
    let (mut read, mut refused) = (0, 0);
    for round in 0..600 {
        let (mut bad, mut entries) = (data.clone(), index.clone());
        match round % 4 {
            // Heads with right sums and other members, in the file and in the index.
            0 | 1 => {
                let frame = random(6);
                let member = 8 + 4 * random(14);
                let value = odd[random(odd.len())].to_le_bytes();
                for (bytes, at) in [(&mut bad, places[frame]), (&mut entries, 64 * frame)] {
                    bytes[at + member..at + member + 4].copy_from_slice(&value[..4]);
                    if member <= 56 && round % 8 < 4 {
                        bytes[at + member..at + member + 8].copy_from_slice(&value);
                    }
                    let crc = crc32(&bytes[at + 8..at + 64]);
                    bytes[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
                }
            }
            // Some bytes that are wrong, missing or too many.
            2 => (0..=random(9)).for_each(|_| bad[random(data.len())] = random(256) as u8),
            _ => {
                let (from, to) = (random(data.len()), random(data.len()));
                let piece = data[from.min(to)..from.max(to)].to_vec();
                bad.splice(random(data.len()).., piece);
                bad.extend_from_slice(&data[random(data.len())..]);
            }
        }
        if random(2) == 0 {
            entries.truncate(random(entries.len()));
        }
        fs::write(dir.data(), &bad).expect("write");
        fs::write(dir.index(), &entries).expect("write");
        let Ok(recording) = Recording::open(dir.path()) else { continue };
        for frame in recording.iter() {
            match frame {
                Ok(frame) => read += usize::from(frame.snapshot.tasks().len() == 10),
                Err(_) => refused += 1,
            }
        }
        if round % 10 == 0 {
            // A reader reads everything that a writer writes.
            record(&dir, [BEGIN + 1000], 10);
            let recording = Recording::open(dir.path()).expect("it opens");
            let last = recording.read(recording.len() - 1).expect("it is whole");
            assert_eq!(last.snapshot.tasks().len(), 10, "round {round}");
            fs::read_dir(dir.path()).expect("there").flatten().for_each(|e| {
                let _ = fs::remove_file(e.path());
            });
            fs::write(dir.path().join("2026-11-22.000.tdr"), &data).expect("write");
        }
    }
    assert!(read > 500 && refused > 50, "{read} {refused}");
}

/// CRC32 as the document defines it, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, b| {
        (0..8).fold(
            crc ^ u32::from(*b),
            |c, _| if c & 1 == 1 { c >> 1 ^ 0xEDB8_8320 } else { c >> 1 },
        )
    })
}

/// Asserts that the work takes at most a few seconds, though a pipe in the directory could block it
/// for ever.
fn soon<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    result.recv_timeout(Duration::from_secs(10)).unwrap_or_else(|_| panic!("{what} still waits"))
}

#[test]
fn a_pipe_in_the_place_of_a_file_makes_no_reader_wait() {
    let pipe = |path: &Path| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).expect("a pipe");
    };
    let dir = Dir::new();
    record(&dir, every(3), 5);
    let path = dir.path();
    fs::remove_file(dir.index()).expect("removed");
    pipe(&dir.data().with_extension("idx"));
    let frames = soon("a reader", {
        let path = path.clone();
        move || Recording::open(path).map(|r| r.iter().filter(Result::is_ok).count())
    });
    assert_eq!(frames.expect("an index is not needed"), 3);

    let later = path.join("2026-11-28.000.tdr");
    pipe(&later);
    for of in [path.clone(), later.clone()] {
        let e = soon("a reader", move || Recording::open(of).map(|_| ()));
        let e = e.expect_err("a pipe is no day file").to_string();
        assert!(e.contains("2026-11-28.000.tdr is not a regular file"), "{e}");
    }
    let e = soon("a writer", move || Writer::open(path, Options::new(EVERY)).map(|_| ()));
    assert!(e.expect_err("a pipe is no day file").to_string().contains("not a regular file"));

    // The file is replaced after the recording was opened.
    fs::remove_file(later).expect("removed");
    let recording = Recording::open(dir.path()).expect("it opens");
    fs::remove_file(dir.data()).expect("removed");
    pipe(&dir.path().join("2026-11-22.000.tdr"));
    let e = soon("a frame", move || recording.read(0).map(|_| ()));
    assert!(e.expect_err("it is a pipe now").to_string().contains("not a regular file"));
}
