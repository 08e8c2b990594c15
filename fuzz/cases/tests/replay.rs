//! Runs every seed and every past finding through its target, also damaged in simple ways. It finds
//! less than a fuzzer, and runs everywhere.

use std::fs;
use std::path::Path;

use taskdiag_fuzz_cases::{Case, TARGETS, seeds};

/// Longer inputs are damaged only at this many places, which are spread over them.
const PLACES: usize = 1024;
const FEW_PLACES: usize = 64;

fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let mut all = seeds::of(target);
    assert!(!all.is_empty(), "no seeds for {target}");
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../seeds").join(target);
    // Without findings there is no directory.
    for entry in fs::read_dir(&dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        all.push((path.display().to_string(), fs::read(&path).unwrap()));
    }
    all
}

fn replay(target: &str) {
    let (_, case) = *TARGETS.iter().find(|(name, _)| *name == target).unwrap();
    // Two dozen commands run with each input.
    let places = if target == "output" { FEW_PLACES } else { PLACES };
    for (name, bytes) in inputs(target) {
        println!("{name}: {} bytes", bytes.len());
        case(&bytes);
        damage(case, &bytes, places);
    }
}

fn damage(case: Case, bytes: &[u8], places: usize) {
    let step = (bytes.len() / places).max(1);
    for at in (0..bytes.len()).step_by(step) {
        case(&bytes[..at]);
        case(&bytes[at..]);
        let mut changed = bytes.to_vec();
        for value in [0, 1, 8, 0x7f, 0xff, bytes[at] ^ 1, bytes[at] ^ 0x80] {
            changed[at] = value;
            case(&changed);
        }
        // A whole number at once gives lengths and offsets that single bytes do not reach.
        if at + 4 <= bytes.len() {
            for value in [u32::MAX, i32::MAX as u32, 0x1_0000, bytes.len() as u32] {
                let mut changed = bytes.to_vec();
                changed[at..at + 4].copy_from_slice(&value.to_ne_bytes());
                case(&changed);
            }
        }
    }
}

#[test]
fn stream() {
    replay("stream");
}

#[test]
fn output() {
    replay("output");
}

#[test]
fn request() {
    replay("request");
}

#[test]
fn procfs_parse() {
    replay("procfs_parse");
}

#[test]
fn filter() {
    replay("filter");
}

#[test]
fn every_valid_stream_parses() {
    for (name, bytes) in seeds::of("stream") {
        assert!(taskdiag::Snapshot::read_from(&bytes[..]).is_ok(), "{name}");
    }
}
