/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A stand-in for NVIDIA's libnvidia-ml: two devices, with the processes that the file PROCESSES
 * has, a line each: device, pid, MiB of memory (-1: not known) and percent of the time in which it
 * runs. With HANGS, nothing answers.
 */
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } process_t;
typedef struct { unsigned pid; unsigned long long time_us; unsigned sm, memory, encoder, decoder; } sample_t;
typedef struct {
	char old_bus_id[16];
	unsigned domain, bus, device, id, subsystem;
	char bus_id[32];
} pci_t;

enum { INSUFFICIENT_SIZE = 7, NOT_FOUND = 6, NOT_SUPPORTED = 3 };

int nvmlInit_v2(void)
{
#ifdef HANGS
	for (;;)
		pause();
#endif
	return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
	*count = 2;
	return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
	*device = (void *)(unsigned long)(index + 1);
	return 0;
}

/* The numbers of the device files are in another order than the devices. */
int nvmlDeviceGetMinorNumber(void *device, unsigned *minor)
{
	*minor = 2 - (unsigned)(unsigned long)device;
	return 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, pci_t *pci)
{
	memset(pci, 0, sizeof(*pci));
	pci->bus = 0x10 + (unsigned)(unsigned long)device;
	return 0;
}

static int each(void *device, int (*take)(void *out, unsigned i, unsigned pid, long mib, unsigned percent), void *out, unsigned *count)
{
	FILE *f = fopen(PROCESSES, "r");
	unsigned of, pid, percent, n = 0;
	long mib;

	while (f && fscanf(f, "%u %u %ld %u", &of, &pid, &mib, &percent) == 4) {
		if (of + 1 != (unsigned long)device)
			continue;
		if (n == *count)
			return fclose(f), INSUFFICIENT_SIZE;
		take(out, n++, pid, mib, percent);
	}
	if (f)
		fclose(f);
	*count = n;
	return 0;
}

static int process(void *out, unsigned i, unsigned pid, long mib, unsigned percent)
{
	process_t *p = (process_t *)out + i;

	(void)percent;
	*p = (process_t){ .pid = pid, .memory = mib < 0 ? ~0ull : (unsigned long long)mib << 20 };
	return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_t *out)
{
	return each(device, process, out, count);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, process_t *out)
{
	(void)device, (void)out;
	*count = 0;
	return 0;
}

static int sample(void *out, unsigned i, unsigned pid, long mib, unsigned percent)
{
	struct timeval now;

	(void)mib;
	gettimeofday(&now, NULL);
	((sample_t *)out)[i] = (sample_t){ .pid = pid, .time_us = now.tv_sec * 1000000ull + now.tv_usec, .sm = percent };
	return 0;
}

/* The second device has no samples. */
int nvmlDeviceGetProcessUtilization(void *device, sample_t *out, unsigned *count, unsigned long long since)
{
	int done;

	(void)since;
	if ((unsigned long)device == 2)
		return NOT_SUPPORTED;
	done = each(device, sample, out, count);
	return done ? done : *count ? 0 : NOT_FOUND;
}
