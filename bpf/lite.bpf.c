/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The snapshot program without NS and CGROUP (NO_RARE), and without paths,
 * maps, files and others (NO_MORE). The kernel searches all of its BTF for each
 * type that a program names, used or not. Without the types of the rarer groups
 * the common requests load in two thirds of the time.
 */
#define NO_RARE
#define NO_MORE
#include "snapshot.bpf.c"
