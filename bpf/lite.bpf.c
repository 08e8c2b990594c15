/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The snapshot program without PATHS, NS and CGROUP, and without maps, files
 * and the like. The kernel searches all of its BTF for each type that a
 * program names, used or not; leaving out the types of the rarer groups makes
 * the common requests load in two thirds of the time.
 */
#define NO_RARE
#define NO_MORE
#include "snapshot.bpf.c"
