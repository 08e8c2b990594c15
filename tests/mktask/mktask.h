/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The functions that the states of mktask share to report facts, fail, skip and wait.
 */
#ifndef MKTASK_H
#define MKTASK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <sys/types.h>

struct state {
	const char *name;
	void (*run)(int argc, char **argv);	/* never returns */
	const char *help;
};

extern const struct state life_states[], name_states[], who_states[], use_states[], held_states[],
	have_states[], link_states[], lock_states[], odd_states[], walk_states[], wait_states[],
	stuck_states[], stack_states[], storm_states[];

/* Reports key=value. A value must not have spaces. Arbitrary bytes are written in hex. */
void fact(const char *key, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void fact_hex(const char *key, const void *data, size_t len);
void fact_str(const char *key, const char *text);
/* Appends to a comma-separated list. The first item begins the list. */
void fact_item(const char *key, int first, long value);

/* Reports the ids of the caller and of its parent. */
void ids(void);

/* The state is reached, so the supervisor may print the facts. */
void ready(void);
_Noreturn void hold(void);		/* ready(), then wait to be killed */
_Noreturn void forever(void);
_Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#define must(expr) \
	({ __typeof__(expr) must_v = (expr); if ((long)must_v == -1) die("%s: %m", #expr); must_v; })

/* A fork() whose child dies with its parent. */
pid_t spawn(void);
void die_with_parent(void);
/* The id of the caller in the pid namespace of /proc, whatever its own namespace is. */
int host_pid(void);
int host_tid(void);
char *self_exe(void);
char *in_dir(const char *dir, const char *name);	/* dir/name in new memory */
/* Executes this program again with an exact argv. `what` continues after the exec. */
_Noreturn void exec_again(const char *exe, char **argv, const char *what);
/* Waits for a bounded time until the state letter of a thread of this process is `state`. */
void await_state(int pid, int tid, char state);
/* Waits until a task sleeps in one place for a while. Another call may sleep before that. */
void await_sleep(int tid, const char *what);
/* The beginning of a file of /proc/TID, as a string. */
void read_proc(int tid, const char *file, char *text, size_t size);
void clean_rmdir(const char *path);	/* when all is over */
void clean_swap(const char *path);
void clean_umount(const char *path);
long long now_ns(int clock);
void burn_ns(int clock, long long ns);	/* until the CPU clock says so */
long arg_number(int argc, char **argv, int i, long otherwise);
/* Starts a thread with a small stack, and returns once it runs. */
void thread(void *(*fn)(void *), void *arg);
void write_file(const char *path, const char *text);	/* dies on failure */

#endif
