/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Members of kernel structs that are read by offset. User space finds the
 * offsets in the kernel's BTF, in one pass of about a millisecond for all of
 * them, and gives them to the program as read-only data: the kernel's own
 * CO-RE takes as long for two or three types. Only used for the groups that
 * touch many types; the others are in kernel.h.
 *
 * NEED(name, struct, member): without it the groups are not supported.
 * MAY(name, struct, member): not in every kernel or configuration; HAVE(name)
 * tells. `member` is a path through named members; `sizeof` is the size of the
 * struct. engine/bpf/offsets.rs reads this very file, a line an entry.
 */
NEED(TASK_MM, task_struct, mm)
NEED(TASK_FILES, task_struct, files)
NEED(TASK_FS, task_struct, fs)
NEED(FS_ROOT_MNT, fs_struct, root.mnt)
NEED(FS_ROOT_DENTRY, fs_struct, root.dentry)

NEED(MM_USERS, mm_struct, mm_users)
NEED(MM_START_BRK, mm_struct, start_brk)
NEED(MM_BRK, mm_struct, brk)
NEED(MM_START_STACK, mm_struct, start_stack)
NEED(MM_ROOT, mm_struct, mm_mt.ma_root)
MAY(MM_CONTEXT_FLAGS, mm_struct, context.flags)
NEED(NODE_PIVOT, maple_range_64, pivot)
NEED(NODE_SLOT, maple_range_64, slot)
NEED(NODE_META, maple_range_64, meta)
NEED(NODE_SIZE, maple_range_64, sizeof)
NEED(ANODE_PIVOT, maple_arange_64, pivot)
NEED(ANODE_SLOT, maple_arange_64, slot)
NEED(ANODE_META, maple_arange_64, meta)

NEED(VMA_SIZE, vm_area_struct, sizeof)
NEED(VMA_START, vm_area_struct, vm_start)
NEED(VMA_END, vm_area_struct, vm_end)
NEED(VMA_MM, vm_area_struct, vm_mm)
NEED(VMA_FLAGS, vm_area_struct, vm_flags)
NEED(VMA_OPS, vm_area_struct, vm_ops)
NEED(VMA_PGOFF, vm_area_struct, vm_pgoff)
NEED(VMA_FILE, vm_area_struct, vm_file)
NEED(VMA_PRIVATE, vm_area_struct, vm_private_data)
MAY(VMA_ANON_NAME, vm_area_struct, anon_name)
MAY(VMA_UFFD, vm_area_struct, vm_userfaultfd_ctx.ctx)
NEED(VMOPS_NAME, vm_operations_struct, name)
NEED(SPECIAL_NAME, vm_special_mapping, name)
MAY(ANON_NAME_TEXT, anon_vma_name, name)

NEED(FILE_MODE, file, f_mode)
NEED(FILE_INODE, file, f_inode)
NEED(FILE_MNT, file, f_path.mnt)
NEED(FILE_DENTRY, file, f_path.dentry)
MAY(BACKING_MNT, backing_file, user_path.mnt)
MAY(BACKING_DENTRY, backing_file, user_path.dentry)
NEED(INODE_INO, inode, i_ino)
NEED(INODE_SB, inode, i_sb)
NEED(INODE_PRIVATE, inode, i_private)
NEED(SB_DEV, super_block, s_dev)
NEED(SB_MAGIC, super_block, s_magic)
NEED(DENTRY_HASHED, dentry, d_hash.pprev)
NEED(DENTRY_PARENT, dentry, d_parent)
NEED(DENTRY_HASH_LEN, dentry, d_name.hash_len)
NEED(DENTRY_LEN, dentry, d_name.len)
NEED(DENTRY_NAME, dentry, d_name.name)
NEED(DENTRY_INODE, dentry, d_inode)
NEED(DENTRY_SB, dentry, d_sb)
NEED(DENTRY_FSDATA, dentry, d_fsdata)
NEED(VFSMOUNT_ROOT, vfsmount, mnt_root)
NEED(VFSMOUNT_SB, vfsmount, mnt_sb)
NEED(MOUNT_MNT, mount, mnt)
NEED(MOUNT_PARENT, mount, mnt_parent)
NEED(MOUNT_POINT, mount, mnt_mountpoint)
MAY(NS_OPS, ns_common, ops)
MAY(NS_OPS_NAME, proc_ns_operations, name)
MAY(DMABUF_NAME, dma_buf, name)
