/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the parts of the storm share: the end of it, random numbers, the directory that everything happens in, and the
 * names that a reader may see there.
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

/* The directory of this storm, made anew, and the working directory of all its tasks that do not change theirs. */
extern char base[];

/* Until the time is over; waits while it is the turn of other parts. */
int going(void);
uint64_t rnd(void);
void seed_with(uint64_t seed);
/* End this process, for a reason that should not be. */
void die(const char *what) __attribute__((noreturn));
/* A child that ends with its parent; 0 in the child, as fork(2). CLONE_FS or CLONE_FILES: what it shares. */
pid_t child(int flags);

/* One directory's two names, or two directories between which the next one moves. */
struct level {
	const char *names[2];
	int moves;
};
enum { LEVELS = 3, ROOMS = 3 };
extern const struct level levels[LEVELS];
/* Names of other directories. */
extern const char *const rooms[ROOMS];

/* A part of the storm goes on until the time is over, and says how often it went round: -1 where it found what cannot be,
 * -2 where this kernel has not what it is about. */
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
long cgroups(void);
long processor(void);
long hunger(void);

/* Make the tree of directories that renames() works on; the lowest of it is open as this. */
int make_tree(void);
/* Start sentinels and tell of them in the file `truth`; how many. */
int start_sentinels(int bottom);
/* End them; how many had ended before. */
int end_sentinels(void);
int sentinel(int number, int is_headless);

#endif
