/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The parts that all of the storm shares: its end, random numbers, the directory in which
 * everything happens, and the names that a reader may see there.
 */
#ifndef STORM_H
#define STORM_H

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The new directory of this storm. It is the working directory of all tasks that do not change
 * theirs. */
extern char base[];

/* True until the time is over. It waits while it is the turn of other parts. */
int going(void);
uint64_t rnd(void);
void seed_with(uint64_t seed);
/* Ends this process for a reason that should not occur. */
void die(const char *what) __attribute__((noreturn));
/* Makes a child that ends with its parent, and returns 0 in it as fork(2) does. CLONE_FS or
 * CLONE_FILES selects the shared part. */
pid_t child(int flags);

/* The two names of a directory, or two directories between which the next one moves. */
struct level {
	const char *names[2];
	int moves;
};
enum { LEVELS = 3, ROOMS = 3 };
extern const struct level levels[LEVELS];
/* The names of other directories. */
extern const char *const rooms[ROOMS];

/* A part of the storm repeats until the time is over, and returns how often it did. It returns -1
 * if it found something impossible, and -2 if this kernel does not have its subject. */
long forks(void);
long traces(void);
long proc(void);
long links(void);
long diag(void);
long places(void);
long leaves(void);
long mounts(void);
long renames(void);
long things(void);
long descriptors(void);
long waits(void);
long cgroups(void);
long processor(void);
long hunger(void);

/* Makes the tree of directories that renames() works on. The lowest directory is open as this
 * descriptor. */
int make_tree(void);
/* Starts sentinels and describes them in the file `truth`. Returns how many there are. */
int start_sentinels(int bottom);
/* Ends them. Returns how many had ended before. */
int end_sentinels(void);
int sentinel(int number, int is_headless);

#endif
