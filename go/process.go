// SPDX-License-Identifier: MIT OR Apache-2.0

package taskdiag

import (
	"bytes"
	"context"
	"fmt"
	"os/user"
	"path"
	"strconv"
	"strings"
)

// ForProcesses are the groups that the service shows every caller, which are all that most methods
// of [Process] need. The methods that need another group name it.
var ForProcesses = Of(GroupBase, GroupCred, GroupStat, GroupStatm, GroupCmdline)

// Process is one process, with methods like those of gopsutil's process.Process. All values are
// from the moment of the answer; no method sends another request. An error says which group was not
// known, and is a [Reason] inside.
type Process struct {
	Task
	users map[uint32]string
}

// Processes asks for all processes with these groups; 0 stands for [ForProcesses].
func (c *Client) Processes(ctx context.Context, groups Groups) ([]Process, error) {
	if groups == 0 {
		groups = ForProcesses
	}
	s, err := c.Get(ctx, Request{Groups: groups})
	if err != nil {
		return nil, err
	}
	return s.Processes(), nil
}

// Processes asks for all processes by the zero [Client].
func Processes(ctx context.Context) ([]Process, error) { return new(Client).Processes(ctx, 0) }

// Processes lists the tasks of an answer as processes. They belong to one goroutine.
func (s *Snapshot) Processes() []Process {
	users := map[uint32]string{}
	all := make([]Process, len(s.tasks))
	for i, t := range s.tasks {
		all[i] = Process{t, users}
	}
	return all
}

// NotKnown is the error of a value that the answer does not have.
type NotKnown struct {
	Group  Group
	Reason error // a Reason
}

func (e *NotKnown) Error() string { return fmt.Sprintf("%s: %v", e.Group, e.Reason) }

// Unwrap makes errors.Is(err, Denied) work.
func (e *NotKnown) Unwrap() error { return e.Reason }

func (p Process) not(g Group) error { return &NotKnown{g, p.why(g)} }

// Pid is the id of the process.
func (p Process) Pid() int32 { return int32(p.Tgid()) }

// Name is the command name. If the kernel cut it to 15 bytes, the whole name is taken from the
// arguments, if they begin with it.
func (p Process) Name() (string, error) {
	b, _ := p.Base()
	comm, known := b.Comm()
	if !known {
		return "", p.not(GroupBase)
	}
	name := text(comm)
	if long, err := p.blob(attrComm, 0, GroupBase); err == nil {
		return string(long.Data), nil
	}
	if len(name) == 15 {
		if args, err := p.CmdlineSlice(); err == nil && len(args) > 0 {
			if long := path.Base(args[0]); strings.HasPrefix(long, name) {
				return long, nil
			}
		}
	}
	return name, nil
}

// CmdlineSlice is the arguments. It is empty for kernel threads and zombies.
func (p Process) CmdlineSlice() ([]string, error) {
	t, err := p.Text(GroupCmdline)
	if err == Absent {
		return nil, nil
	}
	if err != nil {
		return nil, &NotKnown{GroupCmdline, err}
	}
	if len(t.Data) == 0 {
		return nil, nil
	}
	return strings.Split(string(bytes.TrimSuffix(t.Data, []byte{0})), "\x00"), nil
}

// Cmdline is the arguments with blanks between them.
func (p Process) Cmdline() (string, error) {
	args, err := p.CmdlineSlice()
	return strings.Join(args, " "), err
}

// Exe is the path of the program. It needs GroupPaths.
func (p Process) Exe() (string, error) { return p.path(Exe) }

// Cwd is the working directory. It needs GroupPaths.
func (p Process) Cwd() (string, error) { return p.path(Cwd) }

func (p Process) path(which PathKind) (string, error) {
	path, _, err := p.Path(which)
	if err != nil {
		return "", &NotKnown{GroupPaths, err}
	}
	return path, nil
}

// Ppid is the parent's id, 0 if it is not visible.
func (p Process) Ppid() (int32, error) {
	b, _ := p.Base()
	v, known := b.Ppid()
	return int32(v), p.err(known, GroupBase)
}

func (p Process) err(known bool, g Group) error {
	if known {
		return nil
	}
	return p.not(g)
}

var states = map[byte]string{'R': "running", 'S': "sleep", 'D': "blocked", 'T': "stop", 't': "stop", 'Z': "zombie", 'I': "idle",
	'X': "zombie", 'P': "stop"}

// Status is the state as gopsutil calls it, such as "sleep" or "zombie".
func (p Process) Status() ([]string, error) {
	b, _ := p.Base()
	v, known := b.State()
	if !known {
		return nil, p.not(GroupBase)
	}
	return []string{states[v]}, nil
}

// CreateTime is when it began, in milliseconds since the epoch.
func (p Process) CreateTime() (int64, error) {
	b, _ := p.Base()
	v, known := b.StartTimeNs()
	if !known {
		return 0, p.not(GroupBase)
	}
	i := p.of.Info
	return int64(i.RealtimeNs-i.BoottimeNs+v) / 1e6, nil
}

// Uids are the real, effective, saved and file system user ids.
func (p Process) Uids() ([]uint32, error) {
	c, _ := p.Cred()
	return p.ids(c.Uid, c.Euid, c.Suid, c.Fsuid)
}

// Gids are the real, effective, saved and file system group ids.
func (p Process) Gids() ([]uint32, error) {
	c, _ := p.Cred()
	return p.ids(c.Gid, c.Egid, c.Sgid, c.Fsgid)
}

func (p Process) ids(get ...func() (uint32, bool)) ([]uint32, error) {
	var all []uint32
	for _, f := range get {
		v, known := f()
		if !known {
			return nil, p.not(GroupCred)
		}
		all = append(all, v)
	}
	return all, nil
}

// Username is the name of the real user id, or the id if it has no name.
func (p Process) Username() (string, error) {
	c, _ := p.Cred()
	uid, known := c.Uid()
	if !known {
		return "", p.not(GroupCred)
	}
	name, seen := p.users[uid]
	if !seen {
		name = strconv.FormatUint(uint64(uid), 10)
		if u, err := user.LookupId(name); err == nil {
			name = u.Username
		}
		p.users[uid] = name
	}
	return name, nil
}

// TimesStat is CPU time in seconds.
type TimesStat struct{ User, System, ChildrenUser, ChildrenSystem float64 }

// Times is the CPU time of all threads of the process, and of children that it has waited for.
func (p Process) Times() (TimesStat, error) {
	s, _ := p.Stat()
	var t TimesStat
	for _, part := range []struct {
		to  *float64
		get func() (uint64, bool)
	}{{&t.User, s.UtimeNs}, {&t.System, s.StimeNs}, {&t.ChildrenUser, s.CutimeNs}, {&t.ChildrenSystem, s.CstimeNs}} {
		v, known := part.get()
		if !known {
			return t, p.not(GroupStat)
		}
		*part.to = float64(v) / 1e9
	}
	return t, nil
}

// MemoryInfoStat is sizes in bytes.
type MemoryInfoStat struct{ RSS, VMS, HWM, Data, Stack, Locked, Swap uint64 }

// MemoryInfo is the sizes of its memory. Kernel threads and zombies have none, and the error is
// Absent.
func (p Process) MemoryInfo() (MemoryInfoStat, error) {
	s, _ := p.Statm()
	var m MemoryInfoStat
	for _, part := range []struct {
		to  *uint64
		get func() (uint64, bool)
	}{{&m.RSS, s.RssBytes}, {&m.VMS, s.SizeBytes}, {&m.HWM, s.PeakRssBytes}, {&m.Data, s.DataBytes}, {&m.Stack, s.StackBytes},
		{&m.Locked, s.LockedBytes}, {&m.Swap, s.SwapBytes}} {
		v, known := part.get()
		if !known {
			return m, p.not(GroupStatm)
		}
		*part.to = v
	}
	return m, nil
}

// PageFaultsStat is counts of page faults, minor ones without I/O.
type PageFaultsStat struct{ MinorFaults, MajorFaults, ChildMinorFaults, ChildMajorFaults uint64 }

// PageFaults counts the page faults of the process, and of children that it has waited for.
func (p Process) PageFaults() (PageFaultsStat, error) {
	s, _ := p.Stat()
	minor, known1 := s.Minflt()
	major, known2 := s.Majflt()
	cminor, known3 := s.Cminflt()
	cmajor, known4 := s.Cmajflt()
	return PageFaultsStat{minor, major, cminor, cmajor}, p.err(known1 && known2 && known3 && known4, GroupStat)
}

// NumThreads is the number of its threads.
func (p Process) NumThreads() (int32, error) {
	s, _ := p.Stat()
	v, known := s.NumThreads()
	return int32(v), p.err(known, GroupStat)
}

// Nice is the nice value, -20 to 19.
func (p Process) Nice() (int32, error) {
	s, _ := p.Stat()
	v, known := s.Nice()
	return v, p.err(known, GroupStat)
}

// NumFDs is the number of open file descriptors. It needs GroupFdCount.
func (p Process) NumFDs() (int32, error) {
	f, _ := p.FdCount()
	v, known := f.Open()
	return int32(v), p.err(known, GroupFdCount)
}

// IOCountersStat is counts of system calls, and bytes from and to storage.
type IOCountersStat struct{ ReadCount, WriteCount, ReadBytes, WriteBytes uint64 }

// IOCounters is its I/O. It needs GroupIo.
func (p Process) IOCounters() (IOCountersStat, error) {
	s, _ := p.Io()
	reads, known1 := s.Syscr()
	writes, known2 := s.Syscw()
	read, known3 := s.ReadBytes()
	written, known4 := s.WriteBytes()
	return IOCountersStat{reads, writes, read, written}, p.err(known1 && known2 && known3 && known4, GroupIo)
}

// NumCtxSwitchesStat is counts of context switches.
type NumCtxSwitchesStat struct{ Voluntary, Involuntary uint64 }

// NumCtxSwitches counts the context switches of all threads. It needs GroupSched.
func (p Process) NumCtxSwitches() (NumCtxSwitchesStat, error) {
	s, _ := p.Sched()
	voluntary, known1 := s.Nvcsw()
	involuntary, known2 := s.Nivcsw()
	return NumCtxSwitchesStat{voluntary, involuntary}, p.err(known1 && known2, GroupSched)
}
