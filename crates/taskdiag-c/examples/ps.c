/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Lists processes by resident memory: cc ps.c -o ps $(pkg-config --cflags --libs taskdiag) */
#include <inttypes.h>
#include <stdio.h>
#include <taskdiag.h>

int main(void)
{
	taskdiag_query *query;
	taskdiag_table *table = NULL;
	taskdiag_error *error = NULL;

	if (taskdiag_query_new("tasks", "pid,rss,user,comm", &query, &error) == TASKDIAG_OK &&
	    taskdiag_query_sort(query, "-rss", &error) == TASKDIAG_OK)
		taskdiag_ask(query, &table, &error);
	if (error)
		fprintf(stderr, "ps: %s\n", taskdiag_error_text(error));
	for (size_t row = 0; row < taskdiag_table_rows(table); row++) {
		uint64_t pid, rss;
		const char *user, *comm;
		size_t user_length, comm_length;

		taskdiag_u64(table, row, 0, &pid);
		int missing = taskdiag_u64(table, row, 1, &rss);
		taskdiag_text(table, row, 2, &user, &user_length);
		taskdiag_text(table, row, 3, &comm, &comm_length);
		printf("%8" PRIu64 " ", pid);
		if (missing > 0)
			printf("%14s", taskdiag_reason_name(missing));
		else
			printf("%10" PRIu64 " KiB", rss / 1024);
		printf(" %-12.*s %.*s\n", (int)user_length, user, (int)comm_length, comm);
	}
	int failed = error != NULL;
	taskdiag_table_free(table);
	taskdiag_query_free(query);
	taskdiag_error_free(error);
	return failed;
}
