//! `--budget`, `--max-rss` and `--args`: how much of the machine's time and memory an answer may
//! take. A walk over the pages of a process takes milliseconds for each GiB, and the process cannot
//! change its mappings during that time. Arguments may have megabytes, at no cost to their process.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::time::Duration;

use clap::{Arg, ArgMatches};
use taskdiag::view::{parse_duration, parse_size};
use taskdiag::{ByteLimits, Request};

/// The given limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageLimits {
    /// Time for all walks over pages together.
    pub budget: Option<Duration>,
    /// No walk over the pages of larger processes.
    pub max_rss: Option<NonZeroU64>,
    /// The largest number of bytes of the arguments, and of the environment, of a process.
    pub text_bytes: Option<u32>,
    /// About the most bytes of all lists of mappings and open files.
    pub list_bytes: Option<u64>,
}

/// The space for lists in commands that keep many answers, or put one into a page.
const FEWER_LISTS: u64 = 64 << 20;

impl PageLimits {
    /// The options.
    pub fn options() -> [Arg; 2] {
        [
            Arg::new("budget").long("budget").value_name("TIME").value_parser(duration).help(
                "Stop walking over pages after this time, such as 500ms or 2s. Processes that were not reached show ?. The \
                 last one may take a little longer.",
            ),
            Arg::new("max-rss")
                .long("max-rss")
                .value_name("SIZE")
                .value_parser(size)
                .help("Walk over no pages of processes larger than this, such as 2G or 500M"),
        ]
    }
    /// The option for arguments.
    pub fn args_option() -> Arg {
        Arg::new("args").long("args").value_name("SIZE").value_parser(text_size).help(
            "Read at most this much of the arguments and of the environment of each process, such as 1M, or all. Without this it \
             is 128 KiB, and all of a few processes that are named.",
        )
    }
    /// From parsed options. A command may lack some of them.
    pub fn from_matches(m: &ArgMatches) -> PageLimits {
        PageLimits {
            budget: m.try_get_one::<Duration>("budget").ok().flatten().copied(),
            max_rss: m.try_get_one::<NonZeroU64>("max-rss").ok().flatten().copied(),
            text_bytes: m.try_get_one::<u32>("args").ok().flatten().copied(),
            list_bytes: None,
        }
    }
    /// These limits, with little text for each process, and shorter lists.
    #[must_use]
    pub fn for_many_answers(self) -> PageLimits {
        let (text_bytes, list_bytes) = (Some(ByteLimits::SHORT_TEXT), Some(FEWER_LISTS));
        PageLimits { text_bytes, list_bytes, ..self }
    }
    /// Make them part of a request.
    pub fn put_into(&self, request: &mut Request) {
        (request.budget, request.max_rss_bytes) = (self.budget, self.max_rss);
        if let Some(bytes) = self.list_bytes {
            request.limits.all_list_bytes = bytes;
        }
        if let Some(bytes) = self.text_bytes {
            request.limits = request.limits.with_texts_of(bytes);
        }
    }
}

/// The text with a 0 in front of the point, where a number begins with it.
fn with_zero(text: &str) -> Cow<'_, str> {
    if text.starts_with('.') { format!("0{text}").into() } else { text.into() }
}

/// `500ms`, `1.5s`, `1h30m`; without a unit, seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(&with_zero(text)).filter(|d| !d.is_zero()).ok_or_else(|| {
        "a time is a number above 0 with us, ms, s, m, h or d, such as 500ms".to_owned()
    })
}

/// `2G`, `500M`, `64KiB`: powers of 1024; without a unit, bytes.
pub fn size(text: &str) -> Result<NonZeroU64, String> {
    parse_size(&with_zero(text))
        .and_then(NonZeroU64::new)
        .ok_or_else(|| "a size is a number above 0 with K, M, G or T, such as 2G".to_owned())
}

/// A size of text, or `all`, which is the most that execve(2) takes.
fn text_size(text: &str) -> Result<u32, String> {
    match text {
        "all" => Ok(ByteLimits::ONE.text_bytes),
        "0" => Ok(0),
        _ => size(text)
            .map(|n| u32::try_from(n.get()).unwrap_or(u32::MAX).min(ByteLimits::ONE.text_bytes))
            .map_err(|e| format!("{e}, or all")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_of_text_is_bounded_and_may_be_all() {
        for (text, bytes) in [("all", 6 << 20), ("9G", 6 << 20), ("1M", 1 << 20), ("0", 0)] {
            assert_eq!(text_size(text), Ok(bytes), "{text}");
        }
        assert!(text_size("some").is_err_and(|e| e.contains("all")));
    }

    #[test]
    fn times_are_read_with_their_units() {
        for (text, us) in [
            ("500ms", 500_000),
            ("1.5s", 1_500_000),
            ("2", 2_000_000),
            ("1m", 60_000_000),
            (".5s", 500_000),
            ("1h30m", 5_400_000_000),
            ("2d", 172_800_000_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_micros(us)), "{text}");
        }
        for bad in ["", "ms", "-1s", "1x", "0", "1e9s", "99999999999999999999h", "0.0000001us"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        for (text, bytes) in [
            ("2G", 2 << 30),
            ("1.5K", 1536),
            ("64KiB", 65536),
            ("1MB", 1 << 20),
            (".5K", 512),
            ("7", 7),
        ] {
            assert_eq!(size(text).map(NonZeroU64::get), Ok(bytes), "{text}");
        }
        for bad in ["", "G", "0", "0.1", "-1", "1X", "2 G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
