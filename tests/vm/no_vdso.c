// SPDX-License-Identifier: MIT OR Apache-2.0
/* A library to be loaded before others: getauxval(3) as on a kernel without a vDSO. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>

unsigned long getauxval(unsigned long type)
{
	static unsigned long (*real)(unsigned long);

	if (type == AT_SYSINFO_EHDR)
		return 0;
	if (!real)
		real = dlsym(RTLD_NEXT, "getauxval");
	return real(type);
}
