/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The cases that main.rs tests of the library for C, by name. The program ends with 1, and a
 * line that says which claim did not hold.
 */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <taskdiag.h>
#include <unistd.h>

#define HOLDS(claim) ((claim) ? (void)0 : fail(__LINE__, #claim))
#define MUST(call) must(__LINE__, (call), error)

static void fail(int line, const char *claim)
{
	fprintf(stderr, "checks.c:%d: %s\n", line, claim);
	exit(1);
}

static void must(int line, int code, taskdiag_error *error)
{
	if (code != TASKDIAG_OK || error)
		fail(line, taskdiag_error_text(error));
}

/* Checks that the call failed with this code, and that its error has the code and contains this
 * text. */
static void fails(int line, int got, int code, taskdiag_error **error, const char *text)
{
	if (got != code || taskdiag_error_code(*error) != code || !strstr(taskdiag_error_text(*error), text)) {
		fprintf(stderr, "%d, not %d: ", got, code);
		fail(line, taskdiag_error_text(*error));
	}
	taskdiag_error_free(*error);
	*error = NULL;
}
#define FAILS(call, code, text) fails(__LINE__, (call), (code), &error, (text))

static const char *engine;

static taskdiag_query *query_of(const char *rows, const char *columns)
{
	taskdiag_error *error = NULL;
	taskdiag_query *query;

	MUST(taskdiag_query_new(rows, columns, &query, &error));
	if (engine)
		MUST(taskdiag_query_engine(query, engine, &error));
	return query;
}

static taskdiag_table *answer(taskdiag_query *query)
{
	taskdiag_error *error = NULL;
	taskdiag_table *table;

	MUST(taskdiag_ask(query, &table, &error));
	return table;
}

static taskdiag_query *own(const char *rows, const char *columns)
{
	taskdiag_error *error = NULL;
	taskdiag_query *query = query_of(rows, columns);
	uint32_t pid = (uint32_t)getpid();

	MUST(taskdiag_query_pids(query, &pid, 1, &error));
	return query;
}

/* Wrong arguments get a code and a text, and nothing is stored. */
static void faults(void)
{
	taskdiag_error *error = NULL;
	taskdiag_query *query = (void *)1;
	taskdiag_table *table = (void *)1;
	taskdiag_session *session = (void *)1;
	uint32_t pid = 1;

	FAILS(taskdiag_query_new(NULL, "pid", &query, &error), TASKDIAG_ERROR_ARGUMENT, "rows is NULL");
	HOLDS(query == NULL);
	FAILS(taskdiag_query_new("tasks", NULL, &query, &error), TASKDIAG_ERROR_ARGUMENT, "columns is NULL");
	FAILS(taskdiag_query_new("tasks", "pid", NULL, &error), TASKDIAG_ERROR_ARGUMENT, "is NULL");
	FAILS(taskdiag_query_new("cgroups", "path", &query, &error), TASKDIAG_ERROR_QUERY, "there are tasks, maps");
	FAILS(taskdiag_query_new("tasks", "pid,rsss", &query, &error), TASKDIAG_ERROR_QUERY, "did you mean 'rss'?");
	FAILS(taskdiag_query_new("tasks", "pid pid", &query, &error), TASKDIAG_ERROR_QUERY, "twice");
	FAILS(taskdiag_query_new("tasks", " ,", &query, &error), TASKDIAG_ERROR_QUERY, "no column is named");
	FAILS(taskdiag_query_new("tasks", "\xff", &query, &error), TASKDIAG_ERROR_QUERY, "not UTF-8");
	HOLDS(taskdiag_query_new("tasks", "rsss", &query, NULL) == TASKDIAG_ERROR_QUERY);
	FAILS(taskdiag_query_where(NULL, "pid == 1", &error), TASKDIAG_ERROR_ARGUMENT, "query is NULL");
	FAILS(taskdiag_ask(NULL, &table, &error), TASKDIAG_ERROR_ARGUMENT, "query is NULL");
	FAILS(taskdiag_session_open(NULL, &session, &error), TASKDIAG_ERROR_ARGUMENT, "query is NULL");
	HOLDS(session == NULL);
	FAILS(taskdiag_session_ask(NULL, &table, &error), TASKDIAG_ERROR_ARGUMENT, "session is NULL");

	query = query_of("tasks", "pid,comm,args,pss");
	FAILS(taskdiag_query_where(query, "pid ==", &error), TASKDIAG_ERROR_QUERY, "");
	FAILS(taskdiag_query_where(query, NULL, &error), TASKDIAG_ERROR_ARGUMENT, "condition is NULL");
	FAILS(taskdiag_query_sort(query, "-nosuch", &error), TASKDIAG_ERROR_QUERY, "no column 'nosuch'");
	FAILS(taskdiag_query_engine(query, "fast", &error), TASKDIAG_ERROR_QUERY, "no engine 'fast'");
	FAILS(taskdiag_query_pids(query, NULL, 3, &error), TASKDIAG_ERROR_ARGUMENT, "pids is NULL");
	FAILS(taskdiag_query_pids(query, &pid, SIZE_MAX, &error), TASKDIAG_ERROR_ARGUMENT, "longer");
	FAILS(taskdiag_query_option(query, 99, 1, &error), TASKDIAG_ERROR_ARGUMENT, "no option");
	FAILS(taskdiag_query_option(query, TASKDIAG_OPTION_THREADS, 2, &error), TASKDIAG_ERROR_ARGUMENT, "0 or 1");
	FAILS(taskdiag_query_option(query, TASKDIAG_OPTION_PATHS, 1, &error), TASKDIAG_ERROR_ARGUMENT, "rows");
	FAILS(taskdiag_query_option(query, TASKDIAG_OPTION_MAX_RSS_BYTES, 0, &error), TASKDIAG_ERROR_ARGUMENT, "1 byte");
	FAILS(taskdiag_ask(query, NULL, &error), TASKDIAG_ERROR_ARGUMENT, "is NULL");
	FAILS(taskdiag_describe("nothing", &table, &error), TASKDIAG_ERROR_QUERY, "no rows 'nothing'");
	HOLDS(table == NULL);
	taskdiag_query_free(query);
	query = query_of("top", "pid,cpu_now");
	FAILS(taskdiag_query_where(query, "cpu_now > 1", &error), TASKDIAG_ERROR_QUERY, "needs two answers");
	FAILS(taskdiag_query_sort(query, "-cpu_now", &error), TASKDIAG_ERROR_QUERY, "needs two answers");
	taskdiag_query_free(query);

	taskdiag_query_free(NULL);
	taskdiag_session_free(NULL);
	taskdiag_table_free(NULL);
	taskdiag_error_free(NULL);
	HOLDS(taskdiag_error_code(NULL) == TASKDIAG_OK && strlen(taskdiag_error_text(NULL)) > 0);
	HOLDS(taskdiag_table_rows(NULL) == 0 && taskdiag_table_columns(NULL) == 0);
	HOLDS(taskdiag_table_name(NULL, 0) == NULL && taskdiag_table_engines(NULL) == NULL);
	HOLDS(taskdiag_table_nobody(NULL, NULL) == 0 && taskdiag_table_errno(NULL) == 0);
	HOLDS(taskdiag_u64(NULL, 0, 0, NULL) == TASKDIAG_ERROR_ARGUMENT);
	HOLDS(strlen(taskdiag_version()) > 0);
}

/* Each type of value is that of this process, and the wrong function for it is refused. */
static void values(char *program)
{
	taskdiag_error *error = NULL;
	taskdiag_query *query = own("tasks", "pid,ppid,ni,pcpu,time,start,comm,args,tty,rlimit_nofile,rlimit_fsize,supgid,rss");
	taskdiag_table *table;
	const char *text;
	const uint32_t *numbers;
	size_t length, size;
	uint64_t u64 = 7;
	int64_t i64;
	double number;

	table = answer(query);
	HOLDS(taskdiag_table_rows(table) == 1 && taskdiag_table_columns(table) == 13);
	HOLDS(taskdiag_u64(table, 0, 0, &u64) == TASKDIAG_OK && u64 == (uint64_t)getpid());
	HOLDS(taskdiag_i64(table, 0, 1, &i64) == TASKDIAG_OK && i64 == getppid());
	HOLDS(taskdiag_double(table, 0, 1, &number) == TASKDIAG_OK && number == getppid());
	HOLDS(taskdiag_table_type(table, 2) == TASKDIAG_TYPE_I64);
	HOLDS(taskdiag_i64(table, 0, 2, &i64) == TASKDIAG_OK && i64 == nice(0));
	HOLDS(taskdiag_table_type(table, 3) == TASKDIAG_TYPE_DOUBLE && !strcmp(taskdiag_table_unit(table, 3), "percent"));
	HOLDS(taskdiag_u64(table, 0, 3, &u64) == TASKDIAG_ERROR_TYPE && u64 == 0);
	HOLDS(taskdiag_table_type(table, 4) == TASKDIAG_TYPE_DURATION_NS);
	HOLDS(taskdiag_u64(table, 0, 4, &u64) == TASKDIAG_OK && taskdiag_double(table, 0, 4, &number) == TASKDIAG_OK);
	HOLDS(fabs(number - (double)u64 / 1e9) < 1e-9 && !strcmp(taskdiag_table_unit(table, 4), "seconds"));
	HOLDS(taskdiag_table_type(table, 5) == TASKDIAG_TYPE_TIMESTAMP_US);
	HOLDS(taskdiag_i64(table, 0, 5, &i64) == TASKDIAG_OK && taskdiag_double(table, 0, 5, &number) == TASKDIAG_OK);
	HOLDS(i64 > 1600000000000000 && fabs(number * 1e6 - (double)i64) < 1);
	HOLDS(taskdiag_text(table, 0, 6, &text, &length) == TASKDIAG_OK && length == 6 && !memcmp(text, "checks", 6));
	HOLDS(taskdiag_u64(table, 0, 6, &u64) == TASKDIAG_ERROR_TYPE);
	HOLDS(taskdiag_table_type(table, 7) == TASKDIAG_TYPE_TEXT_LIST);
	HOLDS(taskdiag_list_size(table, 0, 7, &size) == TASKDIAG_OK && size >= 2);
	HOLDS(taskdiag_list_text(table, 0, 7, 0, &text, &length) == TASKDIAG_OK);
	HOLDS(length == strlen(program) && !memcmp(text, program, length));
	HOLDS(taskdiag_list_text(table, 0, 7, 1, &text, &length) == TASKDIAG_OK && !memcmp(text, "values", length));
	HOLDS(taskdiag_list_text(table, 0, 7, size, &text, &length) == TASKDIAG_ERROR_ARGUMENT && !text && !length);
	HOLDS(taskdiag_text(table, 0, 7, &text, &length) == TASKDIAG_ERROR_TYPE);
	/* main.rs runs the program without a terminal, and with these limits and groups. */
	HOLDS(taskdiag_text(table, 0, 8, &text, &length) == TASKDIAG_MISSING_ABSENT && length == 0);
	HOLDS(taskdiag_u64(table, 0, 9, &u64) == TASKDIAG_OK && u64 == 123);
	HOLDS(taskdiag_u64(table, 0, 10, &u64) == TASKDIAG_OK && u64 == TASKDIAG_UNLIMITED);
	HOLDS(taskdiag_double(table, 0, 10, &number) == TASKDIAG_OK && isinf(number));
	HOLDS(taskdiag_i64(table, 0, 10, &i64) == TASKDIAG_ERROR_RANGE && i64 == 0);
	HOLDS(taskdiag_table_type(table, 11) == TASKDIAG_TYPE_U32_LIST);
	HOLDS(taskdiag_list_u32(table, 0, 11, &numbers, &size) == TASKDIAG_OK && size == 2);
	HOLDS(numbers[0] == 50001 && numbers[1] == 50002);
	HOLDS(taskdiag_list_size(table, 0, 11, &size) == TASKDIAG_OK && size == 2);
	HOLDS(!strcmp(taskdiag_table_unit(table, 12), "bytes") && !strcmp(taskdiag_table_unit(table, 0), ""));
	HOLDS(taskdiag_table_column(table, "rss") == 12 && !strcmp(taskdiag_table_name(table, 12), "rss"));
	HOLDS(taskdiag_table_column(table, "vsz") == TASKDIAG_ERROR_QUERY);
	HOLDS(taskdiag_u64(table, 1, 0, &u64) == TASKDIAG_ERROR_ARGUMENT && u64 == 0);
	HOLDS(taskdiag_u64(table, 0, 13, &u64) == TASKDIAG_ERROR_ARGUMENT);
	HOLDS(taskdiag_table_type(table, 13) == TASKDIAG_ERROR_ARGUMENT && !taskdiag_table_name(table, 13));
	taskdiag_table_free(table);

	MUST(taskdiag_query_option(query, TASKDIAG_OPTION_TEXT_BYTES, 3, &error));
	table = answer(query);
	HOLDS(taskdiag_list_text(table, 0, 7, 0, &text, &length) == TASKDIAG_MISSING_TRUNCATED);
	HOLDS(length == 3 && !memcmp(text, program, 3));
	HOLDS(!strcmp(taskdiag_reason_name(TASKDIAG_MISSING_TRUNCATED), "truncated"));
	HOLDS(!strcmp(taskdiag_reason_name(0), "known") && !strcmp(taskdiag_reason_name(1 << 30), "unknown"));
	taskdiag_table_free(table);
	taskdiag_query_free(query);
}

/* Selections, order, remarks and other kinds of rows. */
static void rows(void)
{
	taskdiag_error *error = NULL;
	const uint32_t wanted[] = { (uint32_t)getpid(), 4294967295u }, *nobody;
	taskdiag_query *query = query_of("tasks", "pid,rss");
	taskdiag_table *table;
	uint64_t before = UINT64_MAX, rss, deleted = 0;
	const char *text;
	size_t length;

	MUST(taskdiag_query_sort(query, "-rss", &error));
	table = answer(query);
	HOLDS(taskdiag_table_rows(table) > 2 && taskdiag_table_errno(table) == 0);
	HOLDS(!engine || !strcmp(taskdiag_table_engines(table), engine));
	for (size_t row = 0; row < taskdiag_table_rows(table); row++) {
		int missing = taskdiag_u64(table, row, 1, &rss);

		HOLDS(missing == TASKDIAG_OK || missing == TASKDIAG_MISSING_ABSENT || missing == TASKDIAG_MISSING_VANISHED);
		HOLDS(rss <= before);
		before = rss;
	}
	taskdiag_table_free(table);
	MUST(taskdiag_query_pids(query, wanted, 2, &error));
	table = answer(query);
	HOLDS(taskdiag_table_rows(table) == 1);
	HOLDS(taskdiag_table_nobody(table, &nobody) == 1 && nobody[0] == wanted[1]);
	taskdiag_table_free(table);
	MUST(taskdiag_query_pids(query, NULL, 0, &error));
	table = answer(query);
	HOLDS(taskdiag_table_rows(table) == 0 && taskdiag_table_columns(table) == 2);
	HOLDS(taskdiag_table_remark(table, 0) == NULL && !strcmp(taskdiag_table_engines(table), ""));
	taskdiag_table_free(table);
	taskdiag_query_free(query);

	query = query_of("tasks", "pid,comm");
	MUST(taskdiag_query_where(query, "comm == checks and ppid > 0", &error));
	table = answer(query);
	HOLDS(taskdiag_table_rows(table) >= 1);
	taskdiag_table_free(table);
	taskdiag_query_free(query);

	query = own("maps", "pid,path,perms,deleted");
	table = answer(query);
	HOLDS(taskdiag_table_rows(table) > 5);
	for (size_t row = 0; row < taskdiag_table_rows(table); row++)
		if (taskdiag_text(table, row, 1, &text, &length) == TASKDIAG_OK && memchr(text, '/', length))
			deleted += taskdiag_u64(table, row, 3, &rss) == TASKDIAG_OK && rss == 0;
	HOLDS(deleted > 2);
	taskdiag_table_free(table);
	taskdiag_query_free(query);

	query = own("files", "pid,fd,kind");
	table = answer(query);
	length = taskdiag_table_rows(table);
	HOLDS(length >= 3);
	taskdiag_table_free(table);
	MUST(taskdiag_query_option(query, TASKDIAG_OPTION_PATHS, 1, &error));
	table = answer(query);
	HOLDS(taskdiag_table_rows(table) >= length + 3);
	taskdiag_table_free(table);
	taskdiag_query_free(query);

	MUST(taskdiag_describe("files", &table, &error));
	HOLDS(taskdiag_table_column(table, "help") >= 0 && taskdiag_table_rows(table) > 10);
	taskdiag_table_free(table);
}

/* The activity in a session is that of the time between its answers. */
static void sessions(void)
{
	taskdiag_error *error = NULL;
	taskdiag_query *query = own("top", "pid,cpu_now");
	taskdiag_session *session;
	taskdiag_table *table;
	double cpu;

	MUST(taskdiag_session_open(query, &session, &error));
	taskdiag_query_free(query);
	for (int i = 0; i < 5; i++) {
		MUST(taskdiag_session_ask(session, &table, &error));
		HOLDS(taskdiag_table_rows(table) == 1);
		int missing = taskdiag_double(table, 0, 1, &cpu);

		if (i == 0)
			HOLDS(missing == TASKDIAG_MISSING_UNSUPPORTED && cpu == 0);
		else
			HOLDS(missing == TASKDIAG_OK && cpu > 0.1);
		taskdiag_table_free(table);
		for (volatile uint64_t n = 0; n < 50000000; n++)
			;
	}
	taskdiag_session_free(session);
}

static void *ask_often(void *unused)
{
	taskdiag_error *error = NULL;
	taskdiag_query *query = query_of("tasks", "pid,comm,user,rss");
	taskdiag_session *session;
	uint64_t self = 0, pid;

	(void)unused;
	MUST(taskdiag_session_open(query, &session, &error));
	for (int i = 0; i < 10; i++) {
		taskdiag_table *table, *once;

		MUST(taskdiag_session_ask(session, &table, &error));
		MUST(taskdiag_ask(query, &once, &error));
		for (size_t row = 0; row < taskdiag_table_rows(table); row++)
			self += taskdiag_u64(table, row, 0, &pid) == TASKDIAG_OK && pid == (uint64_t)getpid();
		HOLDS(taskdiag_table_rows(once) > 0);
		taskdiag_table_free(table);
		taskdiag_table_free(once);
	}
	HOLDS(self == 10);
	taskdiag_session_free(session);
	taskdiag_query_free(query);
	return NULL;
}

static volatile sig_atomic_t handled_elsewhere;
static pthread_t main_thread;

static void on_signal(int number)
{
	(void)number;
	handled_elsewhere |= !pthread_equal(pthread_self(), main_thread);
}

/* Threads use sessions of their own at once, signals reach none of the library's threads, and a
 * child of fork() uses and frees a session that its parent made. */
static void threads(void)
{
	taskdiag_error *error = NULL;
	pthread_t other[2];
	pid_t noisy;
	int status;

	main_thread = pthread_self();
	signal(SIGUSR1, on_signal);
	pid_t self = getpid();
	if ((noisy = fork()) == 0)
		while (kill(self, SIGUSR1) == 0)
			usleep(500);
	for (int i = 0; i < 5; i++)
		ask_often(NULL);
	kill(noisy, SIGKILL);
	HOLDS(waitpid(noisy, &status, 0) == noisy && !handled_elsewhere);
	signal(SIGUSR1, SIG_IGN);
	for (int i = 0; i < 2; i++)
		HOLDS(pthread_create(&other[i], NULL, ask_often, NULL) == 0);
	for (int i = 0; i < 2; i++)
		HOLDS(pthread_join(other[i], NULL) == 0);

	taskdiag_query *query = query_of("tasks", "pid");
	taskdiag_session *session;
	taskdiag_table *table;
	MUST(taskdiag_session_open(query, &session, &error));
	for (int i = 0; i < 4; i++) {
		MUST(taskdiag_session_ask(session, &table, &error));
		taskdiag_table_free(table);
	}
	pid_t child = fork();
	MUST(taskdiag_session_ask(session, &table, &error));
	HOLDS(taskdiag_table_rows(table) > 1);
	taskdiag_table_free(table);
	taskdiag_session_free(session);
	taskdiag_query_free(query);
	if (child == 0)
		exit(0);
	HOLDS(waitpid(child, &status, 0) == child && status == 0);
}

/* A value that another user may not see has a reason, and is not 0. */
static void denied(void)
{
	taskdiag_error *error = NULL;
	taskdiag_query *query = query_of("tasks", "pid,read_bytes");
	taskdiag_table *table;
	uint64_t bytes = 7;

	MUST(taskdiag_query_where(query, "pid == 1", &error));
	table = answer(query);
	HOLDS(taskdiag_table_rows(table) == 1);
	HOLDS(taskdiag_u64(table, 0, 1, &bytes) == TASKDIAG_MISSING_DENIED && bytes == 0);
	taskdiag_table_free(table);
	MUST(taskdiag_query_where(query, "read_bytes >= 0", &error));
	table = answer(query);
	HOLDS(taskdiag_table_remark(table, 0) && strstr(taskdiag_table_remark(table, 0), "read_bytes"));
	taskdiag_table_free(table);
	MUST(taskdiag_query_engine(query, "bpf", &error));
	FAILS(taskdiag_ask(query, &table, &error), TASKDIAG_ERROR_UNAVAILABLE, "bpf");
	taskdiag_query_free(query);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	engine = argc > 2 ? argv[2] : NULL;
	if (!strcmp(name, "faults"))
		faults();
	else if (!strcmp(name, "values"))
		values(argv[0]);
	else if (!strcmp(name, "rows"))
		rows();
	else if (!strcmp(name, "sessions"))
		sessions();
	else if (!strcmp(name, "threads"))
		threads();
	else if (!strcmp(name, "denied"))
		denied();
	else
		fail(__LINE__, "there is no such case");
	puts("held");
	return 0;
}
