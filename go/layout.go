// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Code generated from the registry of taskdiag-wire by TASKDIAG_WRITE=1 cargo test
// -p taskdiag-wire --test generated. DO NOT EDIT.

package taskdiag

// The groups. Each is a set of values that come from one source at one cost.
const (
	GroupBase      Group = 0
	GroupCred      Group = 1
	GroupVma       Group = 2
	GroupVmaStat   Group = 3
	GroupStat      Group = 4
	GroupStatm     Group = 5
	GroupCmdline   Group = 6
	GroupPaths     Group = 7
	GroupIo        Group = 8
	GroupSched     Group = 9
	GroupNs        Group = 10
	GroupCgroup    Group = 11
	GroupFd        Group = 12
	GroupEnviron   Group = 13
	GroupLimits    Group = 14
	GroupSignals   Group = 15
	GroupFdCount   Group = 16
	GroupRollup    Group = 17
	GroupSwap      Group = 18
	GroupWchan     Group = 19
	GroupKstack    Group = 20
	GroupFileStat  Group = 21
	GroupOom       Group = 22
	GroupLabel     Group = 23
	GroupAutogroup Group = 24
	GroupLogin     Group = 25
	GroupLayout    Group = 26
	GroupWait      Group = 27
	GroupDelays    Group = 28
	GroupNet       Group = 29
	GroupGpu       Group = 30
	GroupPidfd     Group = 31
	GroupSettings  Group = 32
	GroupPersona   Group = 33
	GroupCpuset    Group = 34
	GroupNsId      Group = 35
)

var groupNames = [...]string{
	"base",
	"cred",
	"vma",
	"vma_stat",
	"stat",
	"statm",
	"cmdline",
	"paths",
	"io",
	"sched",
	"ns",
	"cgroup",
	"fd",
	"environ",
	"limits",
	"signals",
	"fd_count",
	"rollup",
	"swap",
	"wchan",
	"kstack",
	"file_stat",
	"oom",
	"label",
	"autogroup",
	"login",
	"layout",
	"wait",
	"delays",
	"net",
	"gpu",
	"pidfd",
	"settings",
	"persona",
	"cpuset",
	"ns_id",
}

// What the service shows of processes, and of threads.
const (
	publicOfProcesses Groups = 0x200c073
	publicOfThreads   Groups = 0x200c233
)

// Base is struct task_diag_base of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Base struct{ record }

func (r Base) Ppid() (uint32, bool)        { return r.u32(0, 8) }
func (r Base) Pgid() (uint32, bool)        { return r.u32(1, 12) }
func (r Base) Sid() (uint32, bool)         { return r.u32(2, 16) }
func (r Base) Flags() (uint32, bool)       { return r.u32(3, 20) }
func (r Base) TaskFlags() (uint32, bool)   { return r.u32(4, 24) }
func (r Base) State() (uint8, bool)        { return r.u8(5, 28) }
func (r Base) StartTimeNs() (uint64, bool) { return r.u64(6, 32) }
func (r Base) Comm() ([]byte, bool)        { return r.bytes(7, 40, 16) }

// Base is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Base() (Base, bool) {
	r, there := t.one(0)
	return Base{r}, there
}

// Cred is struct task_diag_cred of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Cred struct{ record }

func (r Cred) Uid() (uint32, bool)            { return r.u32(0, 8) }
func (r Cred) Euid() (uint32, bool)           { return r.u32(1, 12) }
func (r Cred) Suid() (uint32, bool)           { return r.u32(2, 16) }
func (r Cred) Fsuid() (uint32, bool)          { return r.u32(3, 20) }
func (r Cred) Gid() (uint32, bool)            { return r.u32(4, 24) }
func (r Cred) Egid() (uint32, bool)           { return r.u32(5, 28) }
func (r Cred) Sgid() (uint32, bool)           { return r.u32(6, 32) }
func (r Cred) Fsgid() (uint32, bool)          { return r.u32(7, 36) }
func (r Cred) TracerPid() (uint32, bool)      { return r.u32(8, 40) }
func (r Cred) Securebits() (uint32, bool)     { return r.u32(9, 44) }
func (r Cred) NoNewPrivs() (uint32, bool)     { return r.u32(10, 48) }
func (r Cred) Seccomp() (uint32, bool)        { return r.u32(11, 52) }
func (r Cred) CapInheritable() (uint64, bool) { return r.u64(12, 56) }
func (r Cred) CapPermitted() (uint64, bool)   { return r.u64(13, 64) }
func (r Cred) CapEffective() (uint64, bool)   { return r.u64(14, 72) }
func (r Cred) CapBounding() (uint64, bool)    { return r.u64(15, 80) }
func (r Cred) CapAmbient() (uint64, bool)     { return r.u64(16, 88) }
func (r Cred) Ngroups() (uint32, bool)        { return r.u32(17, 96) }

// Cred is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Cred() (Cred, bool) {
	r, there := t.one(1)
	return Cred{r}, there
}

// Stat is struct task_diag_stat of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Stat struct{ record }

func (r Stat) Minflt() (uint64, bool)     { return r.u64(0, 8) }
func (r Stat) Majflt() (uint64, bool)     { return r.u64(1, 16) }
func (r Stat) Cminflt() (uint64, bool)    { return r.u64(2, 24) }
func (r Stat) Cmajflt() (uint64, bool)    { return r.u64(3, 32) }
func (r Stat) UtimeNs() (uint64, bool)    { return r.u64(4, 40) }
func (r Stat) StimeNs() (uint64, bool)    { return r.u64(5, 48) }
func (r Stat) CutimeNs() (uint64, bool)   { return r.u64(6, 56) }
func (r Stat) CstimeNs() (uint64, bool)   { return r.u64(7, 64) }
func (r Stat) Nice() (int32, bool)        { return r.i32(8, 72) }
func (r Stat) Priority() (int32, bool)    { return r.i32(9, 76) }
func (r Stat) RtPriority() (uint32, bool) { return r.u32(10, 80) }
func (r Stat) Policy() (uint32, bool)     { return r.u32(11, 84) }
func (r Stat) Processor() (uint32, bool)  { return r.u32(12, 88) }
func (r Stat) NumThreads() (uint32, bool) { return r.u32(13, 92) }
func (r Stat) TtyNr() (uint32, bool)      { return r.u32(14, 96) }
func (r Stat) TtyPgrp() (int32, bool)     { return r.i32(15, 100) }
func (r Stat) ExitSignal() (int32, bool)  { return r.i32(16, 104) }
func (r Stat) Flags() (uint32, bool)      { return r.u32(17, 108) }
func (r Stat) GuestNs() (uint64, bool)    { return r.u64(18, 112) }
func (r Stat) CguestNs() (uint64, bool)   { return r.u64(19, 120) }

// Stat is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Stat() (Stat, bool) {
	r, there := t.one(4)
	return Stat{r}, there
}

// Statm is struct task_diag_statm of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Statm struct{ record }

func (r Statm) SizeBytes() (uint64, bool)       { return r.u64(0, 8) }
func (r Statm) PeakSizeBytes() (uint64, bool)   { return r.u64(1, 16) }
func (r Statm) RssBytes() (uint64, bool)        { return r.u64(2, 24) }
func (r Statm) RssAnonBytes() (uint64, bool)    { return r.u64(3, 32) }
func (r Statm) RssFileBytes() (uint64, bool)    { return r.u64(4, 40) }
func (r Statm) RssShmemBytes() (uint64, bool)   { return r.u64(5, 48) }
func (r Statm) PeakRssBytes() (uint64, bool)    { return r.u64(6, 56) }
func (r Statm) DataBytes() (uint64, bool)       { return r.u64(7, 64) }
func (r Statm) StackBytes() (uint64, bool)      { return r.u64(8, 72) }
func (r Statm) TextBytes() (uint64, bool)       { return r.u64(9, 80) }
func (r Statm) LibBytes() (uint64, bool)        { return r.u64(10, 88) }
func (r Statm) LockedBytes() (uint64, bool)     { return r.u64(11, 96) }
func (r Statm) PinnedBytes() (uint64, bool)     { return r.u64(12, 104) }
func (r Statm) PageTablesBytes() (uint64, bool) { return r.u64(13, 112) }
func (r Statm) SwapBytes() (uint64, bool)       { return r.u64(14, 120) }
func (r Statm) HugetlbBytes() (uint64, bool)    { return r.u64(15, 128) }

// Statm is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Statm() (Statm, bool) {
	r, there := t.one(5)
	return Statm{r}, there
}

// Io is struct task_diag_io of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Io struct{ record }

func (r Io) Rchar() (uint64, bool)               { return r.u64(0, 8) }
func (r Io) Wchar() (uint64, bool)               { return r.u64(1, 16) }
func (r Io) Syscr() (uint64, bool)               { return r.u64(2, 24) }
func (r Io) Syscw() (uint64, bool)               { return r.u64(3, 32) }
func (r Io) ReadBytes() (uint64, bool)           { return r.u64(4, 40) }
func (r Io) WriteBytes() (uint64, bool)          { return r.u64(5, 48) }
func (r Io) CancelledWriteBytes() (uint64, bool) { return r.u64(6, 56) }

// Io is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Io() (Io, bool) {
	r, there := t.one(8)
	return Io{r}, there
}

// Sched is struct task_diag_sched of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Sched struct{ record }

func (r Sched) RunTimeNs() (uint64, bool)  { return r.u64(0, 8) }
func (r Sched) RunDelayNs() (uint64, bool) { return r.u64(1, 16) }
func (r Sched) Timeslices() (uint64, bool) { return r.u64(2, 24) }
func (r Sched) Nvcsw() (uint64, bool)      { return r.u64(3, 32) }
func (r Sched) Nivcsw() (uint64, bool)     { return r.u64(4, 40) }
func (r Sched) Flags() (uint32, bool)      { return r.u32(5, 48) }

// Sched is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Sched() (Sched, bool) {
	r, there := t.one(9)
	return Sched{r}, there
}

// Ns is struct task_diag_ns of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Ns struct{ record }

func (r Ns) Cgroup() (uint32, bool)          { return r.u32(0, 8) }
func (r Ns) Ipc() (uint32, bool)             { return r.u32(1, 12) }
func (r Ns) Mnt() (uint32, bool)             { return r.u32(2, 16) }
func (r Ns) Net() (uint32, bool)             { return r.u32(3, 20) }
func (r Ns) Pid() (uint32, bool)             { return r.u32(4, 24) }
func (r Ns) PidForChildren() (uint32, bool)  { return r.u32(5, 28) }
func (r Ns) Time() (uint32, bool)            { return r.u32(6, 32) }
func (r Ns) TimeForChildren() (uint32, bool) { return r.u32(7, 36) }
func (r Ns) User() (uint32, bool)            { return r.u32(8, 40) }
func (r Ns) Uts() (uint32, bool)             { return r.u32(9, 44) }

// Ns is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Ns() (Ns, bool) {
	r, there := t.one(10)
	return Ns{r}, there
}

// Cgroup is struct task_diag_cgroup of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Cgroup struct{ record }

func (r Cgroup) Id() (uint64, bool) { return r.u64(0, 8) }

// Cgroup is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Cgroup() (Cgroup, bool) {
	r, there := t.one(11)
	return Cgroup{r}, there
}

// Limits is struct task_diag_limits of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Limits struct{ record }

func (r Limits) Soft() ([]byte, bool) { return r.bytes(0, 8, 128) }
func (r Limits) Hard() ([]byte, bool) { return r.bytes(1, 136, 128) }

// Limits is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Limits() (Limits, bool) {
	r, there := t.one(14)
	return Limits{r}, there
}

// Signals is struct task_diag_signals of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Signals struct{ record }

func (r Signals) Pending() (uint64, bool)       { return r.u64(0, 8) }
func (r Signals) SharedPending() (uint64, bool) { return r.u64(1, 16) }
func (r Signals) Blocked() (uint64, bool)       { return r.u64(2, 24) }
func (r Signals) Ignored() (uint64, bool)       { return r.u64(3, 32) }
func (r Signals) Caught() (uint64, bool)        { return r.u64(4, 40) }
func (r Signals) Queued() (uint32, bool)        { return r.u32(5, 48) }

// Signals is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Signals() (Signals, bool) {
	r, there := t.one(15)
	return Signals{r}, there
}

// FdCount is struct task_diag_fd_count of uapi/task_diag.h. Each method returns a member, and whether it is known.
type FdCount struct{ record }

func (r FdCount) Open() (uint32, bool) { return r.u32(0, 8) }
func (r FdCount) Size() (uint32, bool) { return r.u32(1, 12) }

// FdCount is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) FdCount() (FdCount, bool) {
	r, there := t.one(16)
	return FdCount{r}, there
}

// Rollup is struct task_diag_rollup of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Rollup struct{ record }

func (r Rollup) RssBytes() (uint64, bool)            { return r.u64(0, 8) }
func (r Rollup) PssBytes() (uint64, bool)            { return r.u64(1, 16) }
func (r Rollup) PssDirtyBytes() (uint64, bool)       { return r.u64(2, 24) }
func (r Rollup) PssAnonBytes() (uint64, bool)        { return r.u64(3, 32) }
func (r Rollup) PssFileBytes() (uint64, bool)        { return r.u64(4, 40) }
func (r Rollup) PssShmemBytes() (uint64, bool)       { return r.u64(5, 48) }
func (r Rollup) SharedCleanBytes() (uint64, bool)    { return r.u64(6, 56) }
func (r Rollup) SharedDirtyBytes() (uint64, bool)    { return r.u64(7, 64) }
func (r Rollup) PrivateCleanBytes() (uint64, bool)   { return r.u64(8, 72) }
func (r Rollup) PrivateDirtyBytes() (uint64, bool)   { return r.u64(9, 80) }
func (r Rollup) ReferencedBytes() (uint64, bool)     { return r.u64(10, 88) }
func (r Rollup) AnonymousBytes() (uint64, bool)      { return r.u64(11, 96) }
func (r Rollup) KsmBytes() (uint64, bool)            { return r.u64(12, 104) }
func (r Rollup) LazyfreeBytes() (uint64, bool)       { return r.u64(13, 112) }
func (r Rollup) AnonHugeBytes() (uint64, bool)       { return r.u64(14, 120) }
func (r Rollup) ShmemHugeBytes() (uint64, bool)      { return r.u64(15, 128) }
func (r Rollup) FileHugeBytes() (uint64, bool)       { return r.u64(16, 136) }
func (r Rollup) SharedHugetlbBytes() (uint64, bool)  { return r.u64(17, 144) }
func (r Rollup) PrivateHugetlbBytes() (uint64, bool) { return r.u64(18, 152) }
func (r Rollup) SwapBytes() (uint64, bool)           { return r.u64(19, 160) }
func (r Rollup) SwapPssBytes() (uint64, bool)        { return r.u64(20, 168) }
func (r Rollup) LockedBytes() (uint64, bool)         { return r.u64(21, 176) }

// Rollup is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Rollup() (Rollup, bool) {
	r, there := t.one(17)
	return Rollup{r}, there
}

// Swap is struct task_diag_swap of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Swap struct{ record }

func (r Swap) AnonBytes() (uint64, bool)         { return r.u64(0, 8) }
func (r Swap) ShmemBytes() (uint64, bool)        { return r.u64(1, 16) }
func (r Swap) PrivateShmemBytes() (uint64, bool) { return r.u64(2, 24) }

// Swap is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Swap() (Swap, bool) {
	r, there := t.one(18)
	return Swap{r}, there
}

// Oom is struct task_diag_oom of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Oom struct{ record }

func (r Oom) Score() (uint32, bool)   { return r.u32(0, 8) }
func (r Oom) ScoreAdj() (int32, bool) { return r.i32(1, 12) }

// Oom is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Oom() (Oom, bool) {
	r, there := t.one(22)
	return Oom{r}, there
}

// Autogroup is struct task_diag_autogroup of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Autogroup struct{ record }

func (r Autogroup) Id() (uint64, bool)  { return r.u64(0, 8) }
func (r Autogroup) Nice() (int32, bool) { return r.i32(1, 16) }

// Autogroup is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Autogroup() (Autogroup, bool) {
	r, there := t.one(24)
	return Autogroup{r}, there
}

// Login is struct task_diag_login of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Login struct{ record }

func (r Login) Uid() (uint32, bool)     { return r.u32(0, 8) }
func (r Login) Session() (uint32, bool) { return r.u32(1, 12) }

// Login is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Login() (Login, bool) {
	r, there := t.one(25)
	return Login{r}, there
}

// Layout is struct task_diag_layout of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Layout struct{ record }

func (r Layout) StartCode() (uint64, bool)  { return r.u64(0, 8) }
func (r Layout) EndCode() (uint64, bool)    { return r.u64(1, 16) }
func (r Layout) StartStack() (uint64, bool) { return r.u64(2, 24) }

// Layout is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Layout() (Layout, bool) {
	r, there := t.one(26)
	return Layout{r}, there
}

// Wait is struct task_diag_wait of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Wait struct{ record }

func (r Wait) Kind() (uint32, bool)       { return r.u32(0, 8) }
func (r Wait) Flags() (uint32, bool)      { return r.u32(1, 12) }
func (r Wait) LastRanNs() (uint64, bool)  { return r.u64(2, 16) }
func (r Wait) RanErrorNs() (uint64, bool) { return r.u64(3, 24) }
func (r Wait) ReadyNs() (uint64, bool)    { return r.u64(4, 32) }
func (r Wait) Object() (uint64, bool)     { return r.u64(5, 40) }
func (r Wait) RanBy() (uint32, bool)      { return r.u32(6, 48) }
func (r Wait) OwnerHow() (uint32, bool)   { return r.u32(7, 52) }
func (r Wait) OwnerTid() (uint32, bool)   { return r.u32(8, 56) }
func (r Wait) OwnerTgid() (uint32, bool)  { return r.u32(9, 60) }
func (r Wait) SyscallNr() (int32, bool)   { return r.i32(10, 64) }
func (r Wait) State() (uint8, bool)       { return r.u8(11, 68) }
func (r Wait) Args() ([]byte, bool)       { return r.bytes(12, 72, 48) }
func (r Wait) UserSp() (uint64, bool)     { return r.u64(13, 120) }
func (r Wait) UserPc() (uint64, bool)     { return r.u64(14, 128) }
func (r Wait) Function() ([]byte, bool)   { return r.bytes(15, 136, 40) }
func (r Wait) Switches() (uint64, bool)   { return r.u64(16, 176) }
func (r Wait) UserFp() (uint64, bool)     { return r.u64(17, 184) }
func (r Wait) UserLr() (uint64, bool)     { return r.u64(18, 192) }

// Wait is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Wait() (Wait, bool) {
	r, there := t.one(27)
	return Wait{r}, there
}

// Delays is struct task_diag_delays of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Delays struct{ record }

func (r Delays) CpuNs() (uint64, bool)          { return r.u64(0, 8) }
func (r Delays) IoNs() (uint64, bool)           { return r.u64(1, 16) }
func (r Delays) SwapinNs() (uint64, bool)       { return r.u64(2, 24) }
func (r Delays) ReclaimNs() (uint64, bool)      { return r.u64(3, 32) }
func (r Delays) ThrashingNs() (uint64, bool)    { return r.u64(4, 40) }
func (r Delays) CompactNs() (uint64, bool)      { return r.u64(5, 48) }
func (r Delays) WpcopyNs() (uint64, bool)       { return r.u64(6, 56) }
func (r Delays) IrqNs() (uint64, bool)          { return r.u64(7, 64) }
func (r Delays) CpuCount() (uint64, bool)       { return r.u64(8, 72) }
func (r Delays) IoCount() (uint64, bool)        { return r.u64(9, 80) }
func (r Delays) SwapinCount() (uint64, bool)    { return r.u64(10, 88) }
func (r Delays) ReclaimCount() (uint64, bool)   { return r.u64(11, 96) }
func (r Delays) ThrashingCount() (uint64, bool) { return r.u64(12, 104) }
func (r Delays) CompactCount() (uint64, bool)   { return r.u64(13, 112) }
func (r Delays) WpcopyCount() (uint64, bool)    { return r.u64(14, 120) }
func (r Delays) IrqCount() (uint64, bool)       { return r.u64(15, 128) }
func (r Delays) MaxNs() ([]byte, bool)          { return r.bytes(16, 136, 64) }
func (r Delays) MinNs() ([]byte, bool)          { return r.bytes(17, 200, 64) }

// Delays is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Delays() (Delays, bool) {
	r, there := t.one(28)
	return Delays{r}, there
}

// Pidfd is struct task_diag_pidfd of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Pidfd struct{ record }

func (r Pidfd) Ino() (uint64, bool)        { return r.u64(0, 8) }
func (r Pidfd) ProcessIno() (uint64, bool) { return r.u64(1, 16) }

// Pidfd is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Pidfd() (Pidfd, bool) {
	r, there := t.one(31)
	return Pidfd{r}, there
}

// Settings is struct task_diag_settings of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Settings struct{ record }

func (r Settings) Ioprio() (uint32, bool)         { return r.u32(0, 8) }
func (r Settings) Umask() (uint32, bool)          { return r.u32(1, 12) }
func (r Settings) SeccompFilters() (uint32, bool) { return r.u32(2, 16) }
func (r Settings) ThpEnabled() (uint32, bool)     { return r.u32(3, 20) }
func (r Settings) Coredumping() (uint32, bool)    { return r.u32(4, 24) }

// Settings is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Settings() (Settings, bool) {
	r, there := t.one(32)
	return Settings{r}, there
}

// Persona is struct task_diag_persona of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Persona struct{ record }

func (r Persona) TimerSlackNs() (uint64, bool) { return r.u64(0, 8) }
func (r Persona) Personality() (uint32, bool)  { return r.u32(1, 16) }

// Persona is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Persona() (Persona, bool) {
	r, there := t.one(33)
	return Persona{r}, there
}

// NsId is struct task_diag_ns_id of uapi/task_diag.h. Each method returns a member, and whether it is known.
type NsId struct{ record }

func (r NsId) Cgroup() (uint64, bool)          { return r.u64(0, 8) }
func (r NsId) Ipc() (uint64, bool)             { return r.u64(1, 16) }
func (r NsId) Mnt() (uint64, bool)             { return r.u64(2, 24) }
func (r NsId) Net() (uint64, bool)             { return r.u64(3, 32) }
func (r NsId) Pid() (uint64, bool)             { return r.u64(4, 40) }
func (r NsId) PidForChildren() (uint64, bool)  { return r.u64(5, 48) }
func (r NsId) Time() (uint64, bool)            { return r.u64(6, 56) }
func (r NsId) TimeForChildren() (uint64, bool) { return r.u64(7, 64) }
func (r NsId) User() (uint64, bool)            { return r.u64(8, 72) }
func (r NsId) Uts() (uint64, bool)             { return r.u64(9, 80) }

// NsId is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) NsId() (NsId, bool) {
	r, there := t.one(35)
	return NsId{r}, there
}

// Vma is struct task_diag_vma of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Vma struct{ record }

func (r Vma) Start() (uint64, bool)       { return r.u64(0, 0) }
func (r Vma) End() (uint64, bool)         { return r.u64(1, 8) }
func (r Vma) OffsetBytes() (uint64, bool) { return r.u64(2, 16) }
func (r Vma) Inode() (uint64, bool)       { return r.u64(3, 24) }
func (r Vma) Dev() (uint32, bool)         { return r.u32(4, 32) }
func (r Vma) Name() (uint32, bool)        { return r.u32(5, 36) }
func (r Vma) Perms() (uint32, bool)       { return r.u32(6, 40) }
func (r Vma) Flags() (uint32, bool)       { return r.u32(7, 44) }
func (r Vma) Kind() (uint32, bool)        { return r.u32(8, 48) }

// Vmas is the list of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Vmas() ([]Vma, bool) {
	entries, there := t.list(2)
	all := make([]Vma, len(entries))
	for i, e := range entries {
		all[i].record = e
	}
	return all, there
}

// VmaStat is struct task_diag_vma_stat of uapi/task_diag.h. Each method returns a member, and whether it is known.
type VmaStat struct{ record }

func (r VmaStat) Start() (uint64, bool)               { return r.u64(0, 0) }
func (r VmaStat) End() (uint64, bool)                 { return r.u64(1, 8) }
func (r VmaStat) RssBytes() (uint64, bool)            { return r.u64(2, 16) }
func (r VmaStat) PssBytes() (uint64, bool)            { return r.u64(3, 24) }
func (r VmaStat) PssDirtyBytes() (uint64, bool)       { return r.u64(4, 32) }
func (r VmaStat) PssAnonBytes() (uint64, bool)        { return r.u64(5, 40) }
func (r VmaStat) PssFileBytes() (uint64, bool)        { return r.u64(6, 48) }
func (r VmaStat) PssShmemBytes() (uint64, bool)       { return r.u64(7, 56) }
func (r VmaStat) SharedCleanBytes() (uint64, bool)    { return r.u64(8, 64) }
func (r VmaStat) SharedDirtyBytes() (uint64, bool)    { return r.u64(9, 72) }
func (r VmaStat) PrivateCleanBytes() (uint64, bool)   { return r.u64(10, 80) }
func (r VmaStat) PrivateDirtyBytes() (uint64, bool)   { return r.u64(11, 88) }
func (r VmaStat) ReferencedBytes() (uint64, bool)     { return r.u64(12, 96) }
func (r VmaStat) AnonymousBytes() (uint64, bool)      { return r.u64(13, 104) }
func (r VmaStat) KsmBytes() (uint64, bool)            { return r.u64(14, 112) }
func (r VmaStat) LazyfreeBytes() (uint64, bool)       { return r.u64(15, 120) }
func (r VmaStat) AnonHugeBytes() (uint64, bool)       { return r.u64(16, 128) }
func (r VmaStat) ShmemHugeBytes() (uint64, bool)      { return r.u64(17, 136) }
func (r VmaStat) FileHugeBytes() (uint64, bool)       { return r.u64(18, 144) }
func (r VmaStat) SharedHugetlbBytes() (uint64, bool)  { return r.u64(19, 152) }
func (r VmaStat) PrivateHugetlbBytes() (uint64, bool) { return r.u64(20, 160) }
func (r VmaStat) SwapBytes() (uint64, bool)           { return r.u64(21, 168) }
func (r VmaStat) SwapPssBytes() (uint64, bool)        { return r.u64(22, 176) }
func (r VmaStat) LockedBytes() (uint64, bool)         { return r.u64(23, 184) }
func (r VmaStat) ThpEligible() (uint64, bool)         { return r.u64(24, 192) }
func (r VmaStat) ProtectionKey() (uint64, bool)       { return r.u64(25, 200) }

// VmaStats is the list of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) VmaStats() ([]VmaStat, bool) {
	entries, there := t.list(3)
	all := make([]VmaStat, len(entries))
	for i, e := range entries {
		all[i].record = e
	}
	return all, there
}

// Fd is struct task_diag_fd of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Fd struct{ record }

func (r Fd) Fd() (uint32, bool)        { return r.u32(0, 0) }
func (r Fd) Type() (uint32, bool)      { return r.u32(1, 4) }
func (r Fd) PosBytes() (uint64, bool)  { return r.u64(2, 8) }
func (r Fd) Inode() (uint64, bool)     { return r.u64(3, 16) }
func (r Fd) Dev() (uint32, bool)       { return r.u32(4, 24) }
func (r Fd) Rdev() (uint32, bool)      { return r.u32(5, 28) }
func (r Fd) Flags() (uint32, bool)     { return r.u32(6, 32) }
func (r Fd) Mode() (uint32, bool)      { return r.u32(7, 36) }
func (r Fd) MntId() (uint32, bool)     { return r.u32(8, 40) }
func (r Fd) Name() (uint32, bool)      { return r.u32(9, 44) }
func (r Fd) SizeBytes() (uint64, bool) { return r.u64(10, 48) }
func (r Fd) Nlink() (uint32, bool)     { return r.u32(11, 56) }

// Fds is the list of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Fds() ([]Fd, bool) {
	entries, there := t.list(12)
	all := make([]Fd, len(entries))
	for i, e := range entries {
		all[i].record = e
	}
	return all, there
}

// FileStat is struct task_diag_file_stat of uapi/task_diag.h. Each method returns a member, and whether it is known.
type FileStat struct{ record }

func (r FileStat) As() (uint32, bool)        { return r.u32(0, 0) }
func (r FileStat) Dev() (uint32, bool)       { return r.u32(1, 4) }
func (r FileStat) Inode() (uint64, bool)     { return r.u64(2, 8) }
func (r FileStat) SizeBytes() (uint64, bool) { return r.u64(3, 16) }
func (r FileStat) Mode() (uint32, bool)      { return r.u32(4, 24) }
func (r FileStat) Nlink() (uint32, bool)     { return r.u32(5, 28) }
func (r FileStat) MntId() (uint32, bool)     { return r.u32(6, 32) }
func (r FileStat) Rdev() (uint32, bool)      { return r.u32(7, 36) }
func (r FileStat) StatDev() (uint32, bool)   { return r.u32(8, 40) }

// FileStats is the list of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) FileStats() ([]FileStat, bool) {
	entries, there := t.list(21)
	all := make([]FileStat, len(entries))
	for i, e := range entries {
		all[i].record = e
	}
	return all, there
}

// Net is struct task_diag_net of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Net struct{ record }

func (r Net) Inode() (uint64, bool)           { return r.u64(0, 0) }
func (r Net) SentBytes() (uint64, bool)       { return r.u64(1, 8) }
func (r Net) AckedBytes() (uint64, bool)      { return r.u64(2, 16) }
func (r Net) ReceivedBytes() (uint64, bool)   { return r.u64(3, 24) }
func (r Net) RetransBytes() (uint64, bool)    { return r.u64(4, 32) }
func (r Net) RttNs() (uint64, bool)           { return r.u64(5, 40) }
func (r Net) RttVarNs() (uint64, bool)        { return r.u64(6, 48) }
func (r Net) SinceSentNs() (uint64, bool)     { return r.u64(7, 56) }
func (r Net) SinceReceivedNs() (uint64, bool) { return r.u64(8, 64) }
func (r Net) Fd() (uint32, bool)              { return r.u32(9, 72) }
func (r Net) Drops() (uint32, bool)           { return r.u32(10, 76) }
func (r Net) SentSegs() (uint32, bool)        { return r.u32(11, 80) }
func (r Net) ReceivedSegs() (uint32, bool)    { return r.u32(12, 84) }
func (r Net) RetransSegs() (uint32, bool)     { return r.u32(13, 88) }
func (r Net) CwndSegs() (uint32, bool)        { return r.u32(14, 92) }
func (r Net) Congestion() ([]byte, bool)      { return r.bytes(15, 96, 16) }
func (r Net) Family() (uint16, bool)          { return r.u16(16, 112) }
func (r Net) Protocol() (uint16, bool)        { return r.u16(17, 114) }

// Nets is the list of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Nets() ([]Net, bool) {
	entries, there := t.list(29)
	all := make([]Net, len(entries))
	for i, e := range entries {
		all[i].record = e
	}
	return all, there
}

// Gpu is struct task_diag_gpu of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Gpu struct{ record }

func (r Gpu) Client() (uint64, bool)        { return r.u64(0, 0) }
func (r Gpu) Fd() (uint32, bool)            { return r.u32(1, 8) }
func (r Gpu) Dev() (uint32, bool)           { return r.u32(2, 12) }
func (r Gpu) BusyNs() (uint64, bool)        { return r.u64(3, 16) }
func (r Gpu) Cycles() (uint64, bool)        { return r.u64(4, 24) }
func (r Gpu) TotalCycles() (uint64, bool)   { return r.u64(5, 32) }
func (r Gpu) TotalBytes() (uint64, bool)    { return r.u64(6, 40) }
func (r Gpu) ResidentBytes() (uint64, bool) { return r.u64(7, 48) }
func (r Gpu) SharedBytes() (uint64, bool)   { return r.u64(8, 56) }
func (r Gpu) Capacity() (uint32, bool)      { return r.u32(9, 64) }
func (r Gpu) Driver() ([]byte, bool)        { return r.bytes(10, 68, 20) }
func (r Gpu) Pdev() ([]byte, bool)          { return r.bytes(11, 88, 20) }
func (r Gpu) Name() ([]byte, bool)          { return r.bytes(12, 108, 16) }

// Gpus is the list of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Gpus() ([]Gpu, bool) {
	entries, there := t.list(30)
	all := make([]Gpu, len(entries))
	for i, e := range entries {
		all[i].record = e
	}
	return all, there
}

// Shared is struct task_diag_shared of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Shared struct{ record }

func (r Shared) Group() (uint32, bool)    { return r.u32(always, 4) }
func (r Shared) Pid() (uint32, bool)      { return r.u32(always, 8) }
func (r Shared) Reserved() (uint32, bool) { return r.u32(always, 12) }

// Shared is the record of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Shared() (Shared, bool) {
	r, there := t.one(69)
	return Shared{r}, there
}

// Socket is struct task_diag_socket of uapi/task_diag.h. Each method returns a member, and whether it is known.
type Socket struct{ record }

func (r Socket) Inode() (uint64, bool)          { return r.u64(0, 0) }
func (r Socket) Fd() (uint32, bool)             { return r.u32(1, 8) }
func (r Socket) Netns() (uint32, bool)          { return r.u32(2, 12) }
func (r Socket) Family() (uint16, bool)         { return r.u16(3, 16) }
func (r Socket) Type() (uint16, bool)           { return r.u16(4, 18) }
func (r Socket) Protocol() (uint16, bool)       { return r.u16(5, 20) }
func (r Socket) State() (uint16, bool)          { return r.u16(6, 22) }
func (r Socket) LocalPort() (uint16, bool)      { return r.u16(7, 24) }
func (r Socket) PeerPort() (uint16, bool)       { return r.u16(8, 26) }
func (r Socket) Ifindex() (uint32, bool)        { return r.u32(9, 28) }
func (r Socket) LocalAddr() ([]byte, bool)      { return r.bytes(10, 32, 16) }
func (r Socket) PeerAddr() ([]byte, bool)       { return r.bytes(11, 48, 16) }
func (r Socket) PeerInode() (uint64, bool)      { return r.u64(12, 64) }
func (r Socket) Name() (uint32, bool)           { return r.u32(13, 72) }
func (r Socket) Portid() (uint32, bool)         { return r.u32(14, 76) }
func (r Socket) RecvQueueBytes() (uint64, bool) { return r.u64(15, 80) }
func (r Socket) SendQueueBytes() (uint64, bool) { return r.u64(16, 88) }

// Sockets is the list of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) Sockets() ([]Socket, bool) {
	entries, there := t.list(70)
	all := make([]Socket, len(entries))
	for i, e := range entries {
		all[i].record = e
	}
	return all, there
}

// FdDetail is struct task_diag_fd_detail of uapi/task_diag.h. Each method returns a member, and whether it is known.
type FdDetail struct{ record }

func (r FdDetail) Fd() (uint32, bool)    { return r.u32(0, 0) }
func (r FdDetail) Kind() (uint32, bool)  { return r.u32(1, 4) }
func (r FdDetail) Value() ([]byte, bool) { return r.bytes(2, 8, 40) }

// FdDetails is the list of this type; false if the task has none, which [Task.Missing] explains.
func (t Task) FdDetails() ([]FdDetail, bool) {
	entries, there := t.list(71)
	all := make([]FdDetail, len(entries))
	for i, e := range entries {
		all[i].record = e
	}
	return all, there
}

var least = map[uint16]int{
	0:  56,
	1:  104,
	4:  112,
	5:  128,
	8:  64,
	9:  56,
	10: 48,
	11: 16,
	14: 264,
	15: 56,
	16: 16,
	17: 184,
	18: 32,
	22: 16,
	24: 24,
	25: 16,
	26: 32,
	27: 176,
	28: 264,
	31: 24,
	32: 32,
	33: 24,
	35: 88,
	69: 16,
}

var leastEntry = map[uint16]int{
	2:  56,
	3:  208,
	12: 64,
	21: 40,
	29: 120,
	30: 128,
	70: 96,
	71: 48,
}
