// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording as the source of tables: all of its frames, or one.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use taskdiag::recording::Recording;
use taskdiag::{Host, Snapshot};
use taskdiag_face::moment::{self, At};

/// A recording, and the chosen frames.
#[derive(Debug)]
pub struct Recorded {
    /// The recording.
    pub recording: Recording,
    /// The name of the host. `None`: the one that was recorded.
    pub host: Option<String>,
    only: Option<usize>,
}

impl Recorded {
    /// Opens a recording. Also returns remarks for users.
    ///
    /// # Errors
    /// The recording cannot be read, or has no such frame. The reason is for users.
    pub fn open(
        path: &Path,
        at: Option<At>,
        host: Option<String>,
    ) -> Result<(Recorded, Vec<String>), String> {
        let recording = Recording::open(path).map_err(|e| e.to_string())?;
        let mut remarks: Vec<String> =
            recording.damage().iter().take(3).map(ToString::to_string).collect();
        if recording.damage().len() > 3 {
            remarks.push(format!(
                "{} more places of the recording are damaged",
                recording.damage().len() - 3
            ));
        }
        let infos = || recording.infos();
        let (Some(first), Some(last)) = (infos().next(), infos().last()) else {
            return Err(format!(
                "{} has no frame yet: 'taskdiag record' writes the first one at once",
                path.display()
            ));
        };
        let mut only = None;
        if let Some(at) = at {
            let time = at
                .moment(last.time, last.every, SystemTime::now())
                .map_err(|why| format!("--at: {why}"))?;
            let number = recording.find(time).ok_or_else(|| {
                format!(
                    "nothing was recorded at {}: the recording begins at {}",
                    moment::shown(time),
                    moment::shown(first.time)
                )
            })?;
            let frame = recording.info(number).unwrap_or(last);
            if frame.is_stale_at(time) {
                remarks.push(format!(
                    "nothing was recorded right before {}: this is of {}",
                    moment::shown(time),
                    moment::shown(frame.time)
                ));
            }
            only = Some(number);
        }
        Ok((Recorded { recording, host, only }, remarks))
    }
    /// The name of the host in rows of this answer. Answers of older versions do not have it, and
    /// were most likely recorded here.
    pub fn host_of(&self, snapshot: &Snapshot) -> String {
        let named = || snapshot.host().name.or_else(|| Host::here().name).unwrap_or_default();
        self.host.clone().unwrap_or_else(|| String::from_utf8_lossy(&named()).into_owned())
    }
    /// The numbers of the frames from one moment to another, in us since 1970.
    pub fn frames(&self, from: Option<i64>, to: Option<i64>) -> Vec<usize> {
        let is_meant = |(number, us): &(usize, i64)| {
            self.only.is_none_or(|only| only == *number)
                && from.is_none_or(|from| *us >= from)
                && to.is_none_or(|to| *us <= to)
        };
        let all = self.recording.infos().map(|info| micros(info.time)).enumerate();
        all.filter(is_meant).map(|(number, _)| number).collect()
    }
}

/// A moment in us since 1970.
pub fn micros(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
