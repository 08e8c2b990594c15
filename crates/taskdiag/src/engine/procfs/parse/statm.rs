//! Parses /proc/PID/statm, which has a few members of STATM.

use taskdiag_wire::Statm;

use super::{Fields, set};

/// Parses a statm file, whose numbers are pages. Where the task has no memory, all numbers are 0,
/// and so are the members.
///
/// The file has no number for anonymous memory. The kernel adds it to the shared memory to get the
/// resident memory, so the difference is exactly that number. The file's text and data differ from
/// those of `status`: the text is not limited to executable memory, and the data includes the
/// stack.
pub fn statm(bytes: &[u8], page_size: u64) -> Statm {
    let mut f = Fields::new(bytes);
    let mut statm = Statm::new();
    let mut pages = || f.u64().and_then(|n| n.checked_mul(page_size));
    let (size, resident, shared) = (pages(), pages(), pages());
    set!(statm, Statm.size_bytes, size);
    set!(statm, Statm.rss_bytes, resident);
    let anon = resident.zip(shared).and_then(|(resident, shared)| resident.checked_sub(shared));
    set!(statm, Statm.rss_anon_bytes, anon);
    statm
}

/// All numbers of a statm file in bytes: size, resident, shared, text, library, data, dirty. `None`
/// if one is not there.
pub fn statm_sizes(bytes: &[u8], page_size: u64) -> Option<[u64; 7]> {
    let mut f = Fields::new(bytes);
    let mut sizes = [0; 7];
    for size in &mut sizes {
        *size = f.u64()?.checked_mul(page_size)?;
    }
    Some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statm_in_pages_becomes_bytes() {
        let sizes = statm_sizes(b"100 23 3 4 0 5 0\n", 4096);
        assert_eq!(sizes, Some([100, 23, 3, 4, 0, 5, 0].map(|n| n << 12)));
        assert_eq!(statm_sizes(b"100 23 3 4 0 5 0", 4096), None);
        assert_eq!(statm_sizes(b"", 4096), None);
    }

    #[test]
    fn statm_gives_every_member() {
        let s = statm(b"100 23 3 4 0 5 0\n", 4096);
        let (size, rss, anon) =
            (s.known().size_bytes(), s.known().rss_bytes(), s.known().rss_anon_bytes());
        assert_eq!((size, rss, anon), (Some(100 << 12), Some(23 << 12), Some(20 << 12)));
        assert_eq!(s.valid.count_ones(), 3);
    }

    #[test]
    fn statm_that_is_cut_or_odd_is_not_known() {
        let known = |text: &[u8]| statm(text, 4096).valid.count_ones();
        assert_eq!([known(b""), known(b"100"), known(b"100 23"), known(b"100 23 3")], [0, 0, 1, 2]);
        // More is shared than is resident.
        assert_eq!(statm(b"1 2 3 \n", 4096).known().rss_anon_bytes(), None);
        assert_eq!(known(b"18446744073709551615 x 3 \n"), 0);
    }
}
