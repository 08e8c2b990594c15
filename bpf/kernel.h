/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The few members of kernel structs that the programs read, as CO-RE types.
 * Their offsets are filled in at load time from the running kernel's BTF. This
 * file is written by hand, instead of a generated vmlinux.h of 3 MB, to show
 * what the programs depend on. A type with a ___ suffix is the form that
 * another kernel version has.
 */
#ifndef TASKDIAG_KERNEL_H
#define TASKDIAG_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
typedef __u8 u8;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
#define true 1
#define false 0
#define NULL ((void *)0)

enum { BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_PERCPU_ARRAY = 6 };
enum { BPF_F_MMAPABLE = 1 << 10 };
/* XArray entries below XA_NODE_MIN are not nodes. XA_RETRY marks an entry that is being replaced. */
enum { XA_NODE_MIN = 4097, XA_RETRY = 256 << 2 | 2 };
/* Bits of an index for which a node of an XArray has entries. */
enum { XA_BITS = 6 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head { struct list_head *next, *prev; };
struct hlist_node { struct hlist_node *next; };
struct hlist_head { struct hlist_node *first; };
struct xarray { void *xa_head; };
struct xa_node { unsigned char shift; void *slots[64]; };
struct idr { struct xarray idr_rt; };
struct seqcount { unsigned int sequence; };
struct seqcount_spinlock { struct seqcount seqcount; };
typedef struct { struct seqcount_spinlock seqcount; } seqlock_t;
struct refcount_struct { struct { int counter; } refs; };
/* Stands for any struct that begins with an int. It is not refcount_struct, because the kernel caches the candidates for
 * type names by 31 hashes, and that name has the same hash as mm_struct, which would cost 0.15 ms at each load. */
struct kref { struct refcount_struct refcount; };

struct pid_namespace;
struct upid { int nr; struct pid_namespace *ns; };
struct pid { unsigned int level; struct hlist_head tasks[4]; struct upid numbers[1]; };
struct ns_common { unsigned int inum; };
struct pid_namespace { struct idr idr; unsigned int level; struct ns_common ns; };
struct user_namespace { struct ns_common ns; };
struct uts_namespace { struct ns_common ns; };
struct ipc_namespace { struct ns_common ns; };
struct mnt_namespace { struct ns_common ns; };
struct net { struct ns_common ns; };
struct timespec64 { s64 tv_sec; long tv_nsec; };
struct timens_offsets { struct timespec64 boottime; };
struct time_namespace { struct ns_common ns; struct timens_offsets offsets; };
struct cgroup_namespace { struct ns_common ns; };
struct nsproxy {
	struct uts_namespace *uts_ns;
	struct ipc_namespace *ipc_ns;
	struct mnt_namespace *mnt_ns;
	struct pid_namespace *pid_ns_for_children;
	struct net *net_ns;
	struct time_namespace *time_ns, *time_ns_for_children;
	struct cgroup_namespace *cgroup_ns;
};

typedef struct { unsigned int val; } kuid_t;
typedef struct { unsigned int val; } kgid_t;
typedef struct { u64 val; } kernel_cap_t;
struct group_info { int ngroups; kgid_t gid[1]; };
struct cred {
	kuid_t uid, suid, euid, fsuid;
	kgid_t gid, sgid, egid, fsgid;
	unsigned int securebits;
	kernel_cap_t cap_inheritable, cap_permitted, cap_effective, cap_bset, cap_ambient;
	struct user_namespace *user_ns;
	struct group_info *group_info;
};

struct task_io_accounting {
	u64 rchar, wchar, syscr, syscw, read_bytes, write_bytes, cancelled_write_bytes;
};
struct prev_cputime { u64 utime, stime; };
struct tty_driver { int major, minor_start; };
struct tty_struct { struct tty_driver *driver; int index; struct { struct pid *pgrp; } ctrl; };
/* Before Linux commit 64d608db38ff ("tty: cumulate and document tty_struct::ctrl* members") (in
 * v5.14). */
struct tty_struct___pgrp { struct pid *pgrp; };
struct signal_struct {
	struct list_head thread_head;
	int nr_threads;
	struct pid *pids[4];
	struct tty_struct *tty;
	seqlock_t stats_lock;
	u64 utime, stime, cutime, cstime, gtime, cgtime;
	struct prev_cputime prev_cputime;
	unsigned long nvcsw, nivcsw;
	unsigned long min_flt, maj_flt, cmin_flt, cmaj_flt;
	struct task_io_accounting ioac;
	unsigned long long sum_sched_runtime;
};

struct percpu_counter { s64 count; int *counters; };
struct mm_struct {
	unsigned long total_vm, hiwater_vm, hiwater_rss, locked_vm, data_vm, exec_vm, stack_vm;
	struct { s64 counter; } pinned_vm;
	struct { s64 counter; } pgtables_bytes;
	struct { s64 counter; } hugetlb_usage;
	unsigned long start_code, end_code, arg_start, arg_end, env_start, env_end;
	struct percpu_counter rss_stat[4];
	void *pgd;
};
/* Before Linux commit f1a7941243c1 ("mm: convert mm's rss stats into percpu_counter") (in v6.2). */
struct atomic_long_s { s64 counter; };
struct mm_rss_stat { struct atomic_long_s count[4]; };
struct mm_struct___array { struct mm_rss_stat rss_stat; };

struct vm_area_struct { struct mm_struct *vm_mm; };

struct kernfs_node { const char *name; struct kernfs_node *__parent; u64 id; };
/* Before Linux commit 633488947ef6 ("kernfs: Use RCU to access kernfs_node::parent") (in v6.15). */
struct kernfs_node___parent { struct kernfs_node *parent; };
struct cgroup_root;
struct cgroup_subsys { const char *legacy_name; };
struct cgroup_subsys_state { struct cgroup_subsys *ss; unsigned int flags; };
struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	struct cgroup_subsys_state *subsys[1];
	struct cgroup_root *root;
};
struct cgroup_root { unsigned int subsys_mask; int hierarchy_id; struct cgroup cgrp; char name[64]; };
struct css_set { struct cgroup *dfl_cgrp; struct list_head cgrp_links; };
struct cgrp_cset_link { struct cgroup *cgrp; struct list_head cgrp_link; };

struct thread_info { u32 cpu; };
struct sched_entity { u64 sum_exec_runtime; };
struct sched_info { unsigned long pcount; unsigned long long run_delay; };
struct seccomp { int mode; };
struct fdtable { unsigned int max_fds; unsigned long *open_fds; };
struct files_struct { struct { int counter; } count; struct fdtable *fdt; unsigned int next_fd; };

/* Before Linux commit bcf9033e5449 ("sched: move CPU field back into thread_info if THREAD_INFO_IN_TASK=y") (in v5.16). */
struct task_struct___cpu { unsigned int cpu; };
/* Before Linux commit e32cf5dfbe22 ("kthread: Generalize pf_io_worker so it can point to struct kthread") (in v5.17), a kernel
 * thread has its struct kthread here, and any other task an address of its own. */
struct task_struct___kthread { void *set_child_tid; };
struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	unsigned int ptrace;
	int prio, static_prio;
	unsigned int rt_priority;
	struct sched_entity se;
	unsigned int policy;
	struct sched_info sched_info;
	struct mm_struct *mm;
	int exit_state, exit_signal;
	unsigned long atomic_flags;
	u64 self_exec_id;
	int pid, tgid;
	struct task_struct *real_parent, *parent, *group_leader;
	struct pid *thread_pid;
	struct hlist_node pid_links[4];
	struct list_head tasks, thread_node;
	void *worker_private;
	u64 utime, stime, gtime;
	struct prev_cputime prev_cputime;
	unsigned long nvcsw, nivcsw;
	u64 start_boottime;
	unsigned long min_flt, maj_flt;
	const struct cred *real_cred;
	char comm[16];
	struct files_struct *files;
	struct nsproxy *nsproxy;
	struct signal_struct *signal;
	struct seccomp seccomp;
	struct task_io_accounting ioac;
	struct css_set *cgroups;
};

struct kthread { void *data; char *full_name; };
struct worker_pool;
struct work_struct;
struct worker { struct work_struct *current_work; struct worker_pool *pool; char desc[32]; };

struct bpf_array { void *pptrs[1]; };
struct seq_file { void *private; };
/* The state of the kernel's iterator: the current number in its pid namespace. */
struct bpf_iter_seq_task_info { u32 tid; };
struct bpf_iter_meta { struct seq_file *seq; u64 session_id; u64 seq_num; };
struct bpf_iter__task { struct bpf_iter_meta *meta; struct task_struct *task; };

#pragma clang attribute pop

struct nlattr { __u16 nla_len, nla_type; };
struct nlmsghdr { __u32 nlmsg_len; __u16 nlmsg_type, nlmsg_flags; __u32 nlmsg_seq, nlmsg_pid; };

struct bpf_iter_num { u64 __opaque[1]; } __attribute__((aligned(8)));

enum { PF_EXITING = 0x4, PF_WQ_WORKER = 0x20, PF_KTHREAD = 0x200000 };
enum { PIDTYPE_PID, PIDTYPE_TGID, PIDTYPE_PGID, PIDTYPE_SID };
enum { CSS_ONLINE = 2 };
enum { MM_FILEPAGES, MM_ANONPAGES, MM_SWAPENTS, MM_SHMEMPAGES, RSS_COUNTERS };

#endif
