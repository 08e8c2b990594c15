//! Tests that the newest BPF program loads for every request, if it loads at all. A group whose code the
//! verifier of this kernel refuses would be answered by the program for older kernels. That answer would be
//! right, but that program steps through all threads. The test has a process of its own, because the choice
//! is remembered.

use taskdiag::engine::bpf::{self, Bpf};
use taskdiag::{Engine, Groups, Request};
use taskdiag_tests::skip;

#[test]
fn the_newest_program_loads_for_every_request() {
    const NAME: &str = "the_newest_program_loads_for_every_request";
    let me = std::process::id();
    if let Err(e) = Bpf::untried().run(&Request::one(me, Groups::BASE)) {
        return skip(NAME, &e.to_string());
    }
    if Bpf::fell_back() {
        return skip(NAME, "this kernel has no task iterators in programs");
    }
    let files = Groups::FD | Groups::PATHS | Groups::VMA | Groups::FILE_STAT;
    let alone = bpf::GROUPS.iter().map(Groups::from);
    let without = bpf::GROUPS.iter().map(|g| bpf::GROUPS - g.into());
    for groups in alone.chain(without).chain([files, bpf::GROUPS]) {
        // The second one looks ahead, which is more code.
        for (mut engine, req) in [
            (Bpf::untried(), Request::threads(me, groups)),
            (Bpf::untried().looking_ahead(), Request::all(groups)),
        ] {
            let asked = engine.run(&req);
            assert!(asked.is_ok(), "{groups}: {asked:?}");
            let strategy = req.strategy;
            assert!(
                !Bpf::fell_back(),
                "the verifier refuses the newest program for {strategy} of {groups}"
            );
        }
    }
}
