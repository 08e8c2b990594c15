# SPDX-License-Identifier: MIT OR Apache-2.0
"""The virtual machine lab: kernels (stock and ours), an initramfs with the tests, QEMU, results.

`common` has paths and the cache, `kernels` the list of kernels. `stock` gets kernels of distributions by apt, and `build` builds
kernels from source and the series. `image` makes the initramfs, and `machine` boots it once. `suites` has what runs in the guest,
`stress` and `storm` put a kernel under load, `bench` makes tables of before and after, and `support` writes docs/use/support.md.
"""
