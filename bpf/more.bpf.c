/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The lite program with paths, maps, files and others. It reads them by offset
 * (see offsets.h), so the kernel searches no type for them.
 */
#define NO_RARE
#include "snapshot.bpf.c"
