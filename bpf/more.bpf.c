/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The lite program with maps, files and the like, which it reads by offset
 * (see offsets.h): no type is searched for them.
 */
#define NO_RARE
#include "snapshot.bpf.c"
