/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * taskdiag.h - processes, threads, mappings and open files of Linux, as tables.
 *
 * A program makes a query of columns, asks it, and reads the rows of the table that it gets. A
 * column has a name, which is the same as in `taskdiag ps -o`, a type and a unit. So a new column
 * of a later version needs no new function. Each value is there, or has a reason why it is missing;
 * a missing value is never a 0 without a reason.
 *
 *	taskdiag_query *query;
 *	taskdiag_table *table;
 *	taskdiag_error *error = NULL;
 *	if (taskdiag_query_new("tasks", "pid,rss", &query, &error) == TASKDIAG_OK &&
 *	    taskdiag_ask(query, &table, &error) == TASKDIAG_OK) ...
 *	else
 *		fprintf(stderr, "%s\n", taskdiag_error_text(error));
 *
 * Errors. A function that takes `error` returns TASKDIAG_OK, which is 0, or a code below 0. It then
 * stores an error in `*error`, unless `error` is NULL, and the caller frees it. After success it
 * stores NULL there. Functions without `error` say what they return. No function prints anything.
 *
 * Ownership. Functions with `**` store an object that the caller frees with the function of its
 * type, and NULL after an error. Functions that free take NULL, too. Pointers to texts, names and
 * lists of a table are valid until the table is freed, those of an error until the error is freed.
 * A query may be freed while its sessions and tables are in use: they have copies.
 *
 * Threads. Objects are independent of each other: any number of threads may use different ones at
 * once. Functions that take a pointer to a const object may also be called for one object by
 * several threads at once. The others need the object for themselves. There is no global state. A
 * signal handler may not call any function. A child of fork() may use and free the objects that it
 * got.
 *
 * The program. taskdiag_ask() and taskdiag_session_ask() make the answer in a thread of their own,
 * in which signals are blocked, and return when it has ended. If the answer has the calling
 * process, its number of threads includes that thread. Descriptors have close-on-exec set. A fault
 * of the library becomes TASKDIAG_ERROR_INTERNAL. If no memory is left, the program ends
 * (abort(3)).
 *
 * Environment. TASKDIAG_ENGINE names the engine for queries that name none. /etc/taskdiag.conf may
 * turn all engines but procfs off.
 *
 * Link with `pkg-config --cflags --libs taskdiag`.
 */
#ifndef TASKDIAG_H
#define TASKDIAG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a program asks. */
typedef struct taskdiag_query taskdiag_query;
/* A query that is repeated. */
typedef struct taskdiag_session taskdiag_session;
/* Rows and columns. A table never changes. */
typedef struct taskdiag_table taskdiag_table;
/* Why a call failed. */
typedef struct taskdiag_error taskdiag_error;

/* What functions return. A later version may have more codes, all of them below 0. */
enum {
	TASKDIAG_OK = 0,
	TASKDIAG_ERROR_ARGUMENT = -1,	 /* a pointer is NULL, or a number is out of its range */
	TASKDIAG_ERROR_QUERY = -2,	 /* an unknown name, or a condition without a meaning */
	TASKDIAG_ERROR_TYPE = -3,	 /* the column has values of another type */
	TASKDIAG_ERROR_RANGE = -4,	 /* the value does not fit the type of the function */
	TASKDIAG_ERROR_UNAVAILABLE = -5, /* the engine does not work here; the text says why */
	TASKDIAG_ERROR_UNSUPPORTED = -6, /* the engine does not have what the columns need */
	TASKDIAG_ERROR_SETTING = -7,	 /* TASKDIAG_ENGINE has a wrong value */
	TASKDIAG_ERROR_SYSTEM = -8,	 /* the system refused something */
	TASKDIAG_ERROR_STREAM = -9,	 /* the engine gave an answer that is malformed */
	TASKDIAG_ERROR_OTHER = -10,	 /* something else; the text says what */
	TASKDIAG_ERROR_INTERNAL = -11	 /* a fault of the library: please report it */
};

/*
 * Why a value is missing or incomplete: the results above 0 of functions for values. A
 * later version may have more reasons.
 */
enum {
	TASKDIAG_MISSING_UNSUPPORTED = 1, /* the engine or the kernel does not provide it */
	TASKDIAG_MISSING_DENIED = 2,	  /* this user may not know it */
	TASKDIAG_MISSING_VANISHED = 3,	  /* the task ended first */
	TASKDIAG_MISSING_BLOCKED = 4,	  /* reading it would have waited for the task */
	TASKDIAG_MISSING_TRUNCATED = 5,	  /* it was too long: only its start is there */
	TASKDIAG_MISSING_ABSENT = 6,	  /* the task has none, as a kernel thread has no memory */
	TASKDIAG_MISSING_OVER_BUDGET = 7, /* an option of the query left it out */
	TASKDIAG_MISSING_STOPPED = 8,	  /* the answer ended early */
	TASKDIAG_MISSING_NOT_ASKED = 255  /* it was not asked for */
};

/* The type of the values of a column. A later version may have more types. */
enum {
	TASKDIAG_TYPE_U64 = 1,		/* taskdiag_u64(); TASKDIAG_UNLIMITED is a limit that is not set */
	TASKDIAG_TYPE_I64 = 2,		/* taskdiag_i64() */
	TASKDIAG_TYPE_DOUBLE = 3,	/* taskdiag_double() */
	TASKDIAG_TYPE_BOOL = 4,		/* taskdiag_u64(): 0 or 1 */
	TASKDIAG_TYPE_DURATION_NS = 5,	/* taskdiag_u64(): nanoseconds */
	TASKDIAG_TYPE_TIMESTAMP_US = 6, /* taskdiag_i64(): microseconds since 1970 UTC */
	TASKDIAG_TYPE_TEXT = 7,		/* taskdiag_text() */
	TASKDIAG_TYPE_TEXT_LIST = 8,	/* taskdiag_list_size() and taskdiag_list_text() */
	TASKDIAG_TYPE_U32_LIST = 9	/* taskdiag_list_u32() */
};

/* The number that stands for a limit that is not set. taskdiag_double() gives infinity for it. */
#define TASKDIAG_UNLIMITED UINT64_MAX

/* Options of a query, for taskdiag_query_option(). */
enum {
	/* 1: rows of tasks are threads, not processes. The default is 0. */
	TASKDIAG_OPTION_THREADS = 1,
	/* 1: rows of files are also programs, working directories and roots. The default is 0. */
	TASKDIAG_OPTION_PATHS = 2,
	/* 1: rows of files are also mapped files. The default is 0. */
	TASKDIAG_OPTION_MAPPED = 3,
	/*
	 * The largest number of bytes of the arguments, and of the environment, of each process. The
	 * default is 128 KiB, and 6 MiB if the query names few processes. 6 MiB is also the largest limit.
	 */
	TASKDIAG_OPTION_TEXT_BYTES = 4,
	/* The longest time for all sums over pages (pss, uss, swap), in ns. The default is none. */
	TASKDIAG_OPTION_BUDGET_NS = 5,
	/* No sums over pages for processes with more resident memory, in bytes. Default: none. */
	TASKDIAG_OPTION_MAX_RSS_BYTES = 6,
	/*
	 * How old an answer of the service may be, in ns, so that programs that ask at about the same
	 * time share one. The default is 0: an answer that began after the call.
	 */
	TASKDIAG_OPTION_MAX_AGE_NS = 7
};

/* The version of the library, such as "0.1.0". The text is valid forever and ends with a NUL. */
const char *taskdiag_version(void);

/*
 * The columns that a kind of rows has, as a table of texts with one column in each row: "column",
 * "type", "unit", "help", and "source", which is the kernel's field or the file of /proc. Rows
 * other than tasks also have the columns of tasks. `rows` is as for taskdiag_query_new().
 *
 * Errors: QUERY for unknown rows.
 */
int taskdiag_describe(const char *rows, taskdiag_table **table, taskdiag_error **error);

/* --- errors --- */

/* The code of an error; TASKDIAG_OK for NULL. */
int taskdiag_error_code(const taskdiag_error *error);

/* What happened and what to do, for people. The text ends with a NUL. It is never NULL. */
const char *taskdiag_error_text(const taskdiag_error *error);

void taskdiag_error_free(taskdiag_error *error);

/* --- queries --- */

/*
 * Makes a query. It reads nothing yet.
 *
 * `rows` is the kind of its rows:
 *   "tasks"	processes, or threads with TASKDIAG_OPTION_THREADS
 *   "maps"	memory mappings of processes
 *   "memory"	processes that have memory, with sums over their pages
 *   "files"	open files, by process
 *   "top"	processes or threads with their activity, for sessions (taskdiag_session_ask())
 *
 * `columns` has their names with commas or blanks between them, such as "pid,comm,rss". The answer
 * has them in this order. Only what they need is read.
 *
 * Errors: QUERY for unknown rows, and for a column that is unknown or named twice.
 */
int taskdiag_query_new(const char *rows, const char *columns, taskdiag_query **query, taskdiag_error **error);

/*
 * Only rows for which a condition is true, such as "rss > 100M and user == web" or "ppid == 1". It
 * replaces an earlier one. The language is the same as in `taskdiag ps --where`. Rows for which it
 * is not known are left out, and a remark of the table counts them.
 *
 * Errors: QUERY if it cannot be understood, or names a column of activity.
 */
int taskdiag_query_where(taskdiag_query *query, const char *condition, taskdiag_error **error);

/*
 * The order of the rows, as names of columns: "-rss,pid" has the largest rss first. It replaces an
 * earlier one. The default is by ids.
 *
 * Errors: QUERY for an unknown column and one of activity.
 */
int taskdiag_query_sort(taskdiag_query *query, const char *keys, taskdiag_error **error);

/*
 * Only these processes. With a `count` of 0, no process is selected, and `pids` may be NULL. Up to
 * 32 processes are asked for one by one. Pids without a process are no error: see
 * taskdiag_table_nobody().
 */
int taskdiag_query_pids(taskdiag_query *query, const uint32_t *pids, size_t count, taskdiag_error **error);

/*
 * Who answers: "kernel", "bpf", "service" or "procfs", or "auto" for the fastest that works,
 * whatever TASKDIAG_ENGINE is.
 *
 * Errors: QUERY for an unknown name. If the engine does not work here, asking fails.
 */
int taskdiag_query_engine(taskdiag_query *query, const char *name, taskdiag_error **error);

/*
 * Sets one of the options above.
 *
 * Errors: ARGUMENT for an unknown option, and for a value that it cannot have.
 */
int taskdiag_query_option(taskdiag_query *query, int option, uint64_t value, taskdiag_error **error);

void taskdiag_query_free(taskdiag_query *query);

/* --- asking --- */

/*
 * Asks once. The table has each row in the order of the query.
 *
 * Errors: UNAVAILABLE if no engine works (or not the one that is named), UNSUPPORTED, SETTING,
 * SYSTEM, STREAM, INTERNAL.
 */
int taskdiag_ask(const taskdiag_query *query, taskdiag_table **table, taskdiag_error **error);

/*
 * Opens a session, for a query that is repeated. It is a copy of the query. From the third answer
 * on, its BPF programs stay loaded while the session is asked at least each minute. The program
 * may close the descriptors of a session; it then opens others.
 */
int taskdiag_session_open(const taskdiag_query *query, taskdiag_session **session, taskdiag_error **error);

/*
 * Asks again, with a new table. If the rows are "top", columns of activity, such as "cpu_now" in
 * percent of one CPU, cover the time between the starts of the previous answer and of this one.
 * taskdiag_describe() lists them. In the first answer they are TASKDIAG_MISSING_UNSUPPORTED.
 *
 * Errors: as taskdiag_ask(). The session stays usable.
 */
int taskdiag_session_ask(taskdiag_session *session, taskdiag_table **table, taskdiag_error **error);

void taskdiag_session_free(taskdiag_session *session);

/* --- tables --- */

/* How many rows and columns there are; 0 for NULL. Both are counted from 0. */
size_t taskdiag_table_rows(const taskdiag_table *table);
size_t taskdiag_table_columns(const taskdiag_table *table);

/* The number of the column with this name, or TASKDIAG_ERROR_QUERY or _ARGUMENT. */
int taskdiag_table_column(const taskdiag_table *table, const char *name);

/* The name of a column, as it was asked for. It ends with a NUL. NULL: there is no such column. */
const char *taskdiag_table_name(const taskdiag_table *table, size_t column);

/* The type of a column, TASKDIAG_TYPE_*, or TASKDIAG_ERROR_ARGUMENT. */
int taskdiag_table_type(const taskdiag_table *table, size_t column);

/*
 * The unit of the numbers of taskdiag_double(): "bytes", "seconds", "unix seconds", "percent",
 * "count", or "" for none. Whole numbers have the same unit except for the types DURATION_NS and
 * TIMESTAMP_US. It ends with a NUL. NULL: there is no such column.
 */
const char *taskdiag_table_unit(const taskdiag_table *table, size_t column);

/* The engines that answered, with commas between them. It ends with a NUL. NULL for no table. */
const char *taskdiag_table_engines(const taskdiag_table *table);

/*
 * The remark with this number, from 0 on, such as tasks that a condition left out because it is not
 * known whether they match. It is for people, and ends with a NUL. NULL: there are no more.
 */
const char *taskdiag_table_remark(const taskdiag_table *table, size_t number);

/* Stores pids that the query names and that no process has in `*pids`. Returns how many. */
size_t taskdiag_table_nobody(const taskdiag_table *table, const uint32_t **pids);

/* The errno of an answer that ended early, so that rows are missing; 0: it is complete. */
int taskdiag_table_errno(const taskdiag_table *table);

void taskdiag_table_free(taskdiag_table *table);

/* --- values --- */

/*
 * These store the value of a row in a column, and return
 *   TASKDIAG_OK	it is there
 *   above 0		TASKDIAG_MISSING_*: it is missing or incomplete. The stored value is 0, or no text, or
 *			an empty list; with TASKDIAG_MISSING_TRUNCATED it is the start of the value.
 *   below 0		ARGUMENT: there is no such row or column. TYPE: the column has other values.
 *			RANGE: the number does not fit. 0, NULL or no length is stored.
 *
 * A place may be NULL, if only the result of the function is wanted.
 */

/* A whole number from 0 on: U64, BOOL, DURATION_NS, and I64 and TIMESTAMP_US if it fits. */
int taskdiag_u64(const taskdiag_table *table, size_t row, size_t column, uint64_t *value);

/* A whole number, of the types I64, BOOL, DURATION_NS, TIMESTAMP_US, and U64 if it fits. */
int taskdiag_i64(const taskdiag_table *table, size_t row, size_t column, int64_t *value);

/* A number of any type, in the unit of its column. A large whole number may be rounded. */
int taskdiag_double(const taskdiag_table *table, size_t row, size_t column, double *value);

/*
 * A text. It has `*length` bytes, which may have any value: they may include a NUL, no NUL follows
 * them, and they need not be valid UTF-8. A program that shows text on a terminal escapes it.
 */
int taskdiag_text(const taskdiag_table *table, size_t row, size_t column, const char **text, size_t *length);

/* How many texts or numbers the list of a row has. */
int taskdiag_list_size(const taskdiag_table *table, size_t row, size_t column, size_t *size);

/* A text of a list, as taskdiag_text(). `index` is counted from 0. */
int taskdiag_list_text(const taskdiag_table *table, size_t row, size_t column, size_t index, const char **text,
		       size_t *length);

/* The numbers of a list, which are `*size` numbers in a row. */
int taskdiag_list_u32(const taskdiag_table *table, size_t row, size_t column, const uint32_t **numbers, size_t *size);

/* The name of a reason, such as "denied"; "known" for 0, "unknown" for all others. Never NULL. */
const char *taskdiag_reason_name(int reason);

#ifdef __cplusplus
}
#endif

#endif
