// SPDX-License-Identifier: MIT OR Apache-2.0
/* Prints the monotonic clock in ns: the workload that `rounds.sh` has perf start, to know when perf was ready. */
#include <stdio.h>
#include <time.h>

int main(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	printf("%lld\n", now.tv_sec * 1000000000LL + now.tv_nsec);
	return 0;
}
