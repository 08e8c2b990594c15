// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nothing. Cargo wants a target in each package, and this one only names programs of other
//! packages.
