//! Compression of streams with zstd. A frame that is not a key frame is compressed with the stream
//! of its key frame as a prefix, so unchanged data takes nearly no room.

use taskdiag_wire::AlignedBuf;
use zstd_safe::{CCtx, CParameter, DCtx, get_error_name};

/// A fast level. A higher one gains little, because the prefix gives most of the compression.
const LEVEL: i32 = 3;
/// Above this size, the match finder of this level does not cover the whole prefix, so the one for
/// long distances is used, too.
const LARGE: usize = 1 << 20;

/// Compresses a stream into `out`, which is emptied before. `prefix` is the stream of the key
/// frame; it is empty for a key frame.
pub fn compress(stream: &[u8], prefix: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    let all = stream.len() + prefix.len();
    let window = all.max(1 << 10).next_power_of_two().ilog2().min(30);
    let mut cx = CCtx::try_create().ok_or("there is no memory for it")?;
    let mut set = |parameter| cx.set_parameter(parameter).map_err(get_error_name);
    set(CParameter::CompressionLevel(LEVEL))?;
    set(CParameter::WindowLog(window))?;
    set(CParameter::ChecksumFlag(true))?;
    if all > LARGE {
        set(CParameter::EnableLongDistanceMatching(true))?;
    }
    if !prefix.is_empty() {
        cx.ref_prefix(prefix).map_err(get_error_name)?;
    }
    out.clear();
    out.reserve(zstd_safe::compress_bound(stream.len()));
    cx.compress2(out, stream).map_err(get_error_name)?;
    Ok(())
}

/// Decompresses a stream of `len` bytes.
pub fn decompress(data: &[u8], prefix: &[u8], len: usize) -> Result<AlignedBuf, &'static str> {
    let mut stream = AlignedBuf::zeroed(len);
    let mut cx = DCtx::try_create().ok_or("there is no memory for it")?;
    if !prefix.is_empty() {
        cx.ref_prefix(prefix).map_err(get_error_name)?;
    }
    let n = cx.decompress(stream.as_mut_bytes(), data).map_err(get_error_name)?;
    if n == len { Ok(stream) } else { Err("its length differs from its head") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_come_back_and_what_is_alike_is_small() {
        // Bytes that do not compress alone.
        let mut seed = 1u64;
        let mut random = |_| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as u8
        };
        // The larger one uses the match finder for long distances.
        for len in [8, 4096, 600_000, 3_000_000] {
            let key: Vec<u8> = (0..len).map(&mut random).collect();
            let mut next = key.clone();
            next.iter_mut().step_by(1000).for_each(|b| *b ^= 1);
            let (mut whole, mut delta) = (Vec::new(), Vec::new());
            compress(&key, &[], &mut whole).expect("it is compressed");
            compress(&next, &key, &mut delta).expect("it is compressed");
            let back = decompress(&whole, &[], len).expect("it is whole");
            assert_eq!(back.as_bytes(), key);
            let back = decompress(&delta, &key, len).expect("it is whole");
            assert_eq!(back.as_bytes(), next);
            assert!(delta.len() <= 40 + len / 50, "{len}: {} bytes", delta.len());
            if len > 8 {
                // The checksum shows that another prefix was used.
                let other = vec![0; len];
                decompress(&delta, &other, len).expect_err("the prefix is another");
            }
            decompress(&whole, &[], len + 8).expect_err("it is shorter");
        }
    }
}
