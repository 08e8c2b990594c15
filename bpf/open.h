/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The table of open files of a task, and whether a descriptor is still the file
 * that was read (see files.h).
 */
#ifndef TASKDIAG_OPEN_H
#define TASKDIAG_OPEN_H

#include "out.h"
#include "raw.h"

enum { O_CLOEXEC = 02000000 };
enum { MAGIC_MQUEUE = 0x19800202 };

/* The first 8 bytes of a text as a number in memory order. */
#define TEXT8(s) ((u64)(u8)(s)[0] | (u64)(u8)(s)[1] << 8 | (u64)(u8)(s)[2] << 16 |	\
		  (u64)(u8)(s)[3] << 24 | (u64)(u8)(s)[4] << 32 | (u64)(u8)(s)[5] << 40 |	\
		  (u64)(u8)(s)[6] << 48 | (u64)(u8)(s)[7] << 56)

#define FILE(t, name) RD(t, st.file, FILE_##name)
#define INODE(t, name) RD(t, st.inode, INODE_##name)

/* Does the task still have this file table? If not, no pointer in the table may be followed any more. */
static __always_inline bool still_its_files(void)
{
	st.gone = !STILL_AT(THIS, TASK_FILES, st.files);
	return !st.gone;
}

/* Set st.found to the file of a descriptor, or to 0 if it is not open. A pointer is followed only if the table was still
 * the task's after the pointer was read. Every call starts at files_struct, because a table that grows is replaced. */
GROUP_FN file_of(u32 fd)
{
	u64 fdt = RD(u64, st.files, FILES_FDT), array, file;
	u32 max;

	st.found = 0;
	if (!still_its_files())
		return 0;
	max = RD(u32, fdt, FDT_MAX);
	array = RD(u64, fdt, FDT_FD);
	if (!still_its_files() || fd >= max)
		return 0;
	file = RD_AT(u64, array + fd * 8ull);
	if (still_its_files())
		st.found = file;
	return 0;
}

/* Is the file st.file still open as the descriptor st.fd? */
static __always_inline bool still_open(void)
{
	file_of(st.fd);
	return st.found == st.file;
}

#endif
