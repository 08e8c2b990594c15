# SPDX-License-Identifier: MIT OR Apache-2.0
"""The virtual machine lab: kernels (stock and ours), an initramfs with the tests, QEMU, results.

`common` paths and the cache; `kernels` the list; `stock` distribution kernels by apt; `build` kernels from
source and the series; `image` the initramfs; `machine` one boot; `suites` what runs in the guest;
`stress` and `storm` make them suffer; `bench` before/after tables; `support` docs/support.md.
"""
