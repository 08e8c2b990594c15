//! Tells the generator where libbpf-sys has libbpf's headers for BPF programs.

fn main() {
    let dir = std::env::var("DEP_BPF_INCLUDE").expect("libbpf-sys exports its include directory");
    println!("cargo:rustc-env=LIBBPF_INCLUDE={dir}");
}
