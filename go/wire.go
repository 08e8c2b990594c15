// SPDX-License-Identifier: MIT OR Apache-2.0

// Package taskdiag reads what Linux knows about processes and threads: one request, one binary
// answer, without cgo and without files of /proc.
//
// [Processes] is for collectors and looks like gopsutil: a list of processes with names, times and
// sizes. [Client.Get] asks for groups of values, and [Parse] reads an answer that was saved by
// `taskdiag dump`. docs/reference/format.md explains the format.
//
// Text of processes is chosen by their users and may have any bytes, control characters included.
package taskdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// Group identifies a set of values of a task, by the number of its attribute.
type Group uint16

// Groups is a set of groups, bit n of it for group n.
type Groups uint64

// Of makes a set of groups.
func Of(groups ...Group) Groups {
	var all Groups
	for _, g := range groups {
		all |= 1 << g
	}
	return all
}

// Has tells whether all of these groups are in the set.
func (g Groups) Has(other Groups) bool { return g&other == other }

// String is the name of the group, as `taskdiag dump -g` takes it.
func (g Group) String() string {
	if int(g) < len(groupNames) {
		return groupNames[g]
	}
	return fmt.Sprintf("group %d", uint16(g))
}

// String is the list of names, as `taskdiag dump -g` takes it.
func (g Groups) String() string {
	var names []string
	for n := Group(0); n < 64; n++ {
		if g.Has(Of(n)) {
			names = append(names, n.String())
		}
	}
	return strings.Join(names, ",")
}

// Reason says why a value is not known. It is an error, so that errors.Is(err, Denied) works.
type Reason uint32

// The reasons, in the order of the format.
const (
	NotAsked    Reason = iota // the request did not name the group
	Unsupported               // the engine or the kernel cannot tell
	Denied                    // the caller may not know
	Vanished                  // the task ended first
	Blocked                   // reading it would have waited for the task
	Truncated                 // it did not fit
	Absent                    // the task has none, as a kernel thread has no memory
	OverBudget                // a limit of the request left it out
	Stopped                   // the reading of this group ended early
)

var reasons = [...]string{"it was not asked for", "the engine or the kernel cannot tell", "no permission", "the task ended",
	"reading it would have waited for the task", "it is too long", "the task has none", "it is over a limit of the request",
	"the reading ended early"}

func (r Reason) Error() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return fmt.Sprintf("reason %d", uint32(r))
}

const (
	msgNoop, msgDone, msgInfo, msgTask = 2, 3, 18, 19
	attrMissing, attrGroups, attrPath  = 64, 65, 67
	attrName, attrComm                 = 68, 72
	magic, version                     = 0x47444154, 1
	flagCont                           = 1
	heads, taskHead, attrHead          = 16, 16, 4
	blobHead, arrayHead, missingHead   = 24, 16, 8
	leastInfo, leastDone               = 88, 56
	always                             = ^uint(0)
)

// ErrFormat is in each error of a stream that is cut, damaged, or of another version.
var ErrFormat = errors.New("not a complete answer of taskdiag")

func bad(at int, what string) error { return fmt.Errorf("%w: %s at byte %d", ErrFormat, what, at) }

// The format has the byte order of the machine that wrote it, and streams of another order are
// refused by their magic number.
var order = func() binary.ByteOrder {
	one := uint16(1)
	if *(*byte)(unsafe.Pointer(&one)) == 1 {
		return binary.LittleEndian
	}
	return binary.BigEndian
}()

// Info describes the request, the engine and the moment of an answer.
type Info struct {
	Groups        Groups
	Strategy      Strategy
	CPUs          uint32 // online
	RealtimeNs    uint64 // CLOCK_REALTIME when the walk began
	BoottimeNs    uint64 // CLOCK_BOOTTIME at the same moment
	MemTotalBytes uint64 // 0: not known
	TicksASecond  uint32
	Host          string // empty: not known
	Kernel        string // release
	Machine       string // architecture
}

// Done has the totals of an answer.
type Done struct {
	Errno      int32  // not 0: the walk ended early
	Tasks      uint64 // in the answer
	Denied     uint64 // tasks that lack a group for want of rights
	Vanished   uint64 // tasks that ended during the walk
	Blocked    uint64 // tasks that lack a group because reading it would have waited
	Truncated  uint64 // tasks with a value that is cut
	OverBudget uint64 // tasks that lack a group because of a limit of the request
}

// Snapshot is one answer. It keeps the bytes that it was parsed from, and its texts refer to them.
type Snapshot struct {
	Info Info
	Done Done
	// From says who answered: "service" or "command". It is empty for a saved answer.
	From  string
	tasks []Task
	data  []byte
	names map[uint32][]byte
}

// Task is a process, or a thread if the strategy lists threads.
type Task struct {
	of       *Snapshot
	pid      uint32
	tgid     uint32
	from, to int // its messages
}

// Tasks lists the tasks in the order of the answer.
func (s *Snapshot) Tasks() []Task { return s.tasks }

// Pid is the id of the thread; for a process, that of its first thread.
func (t Task) Pid() uint32 { return t.pid }

// Tgid is the id of the process.
func (t Task) Tgid() uint32 { return t.tgid }

func text(fixed []byte) string {
	s := string(fixed)
	if end := strings.IndexByte(s, 0); end >= 0 {
		s = s[:end]
	}
	return s
}

// Parse reads a stream, for example the output of `taskdiag dump`. All lengths are checked before
// it returns, so no method of the result fails or reads past the end. The bytes must not be changed
// as long as the snapshot is used.
//
// It returns an error that wraps [ErrFormat] for anything but one complete stream of this machine's
// byte order.
func Parse(data []byte) (*Snapshot, error) {
	s := &Snapshot{data: data}
	var sawInfo, sawDone bool
	for at := 0; at < len(data); {
		if sawDone {
			return nil, bad(at, "bytes after the end")
		}
		if len(data)-at < heads {
			return nil, bad(at, "a cut message")
		}
		size, kind := int(order.Uint32(data[at:])), order.Uint16(data[at+4:])
		if size < heads || size%8 != 0 || size > len(data)-at {
			return nil, bad(at, "a message of a wrong length")
		}
		if !sawInfo && kind != msgInfo && kind != msgNoop {
			return nil, bad(at, "no INFO")
		}
		body, end := data[at+heads:at+size], at+size
		switch kind {
		case msgInfo:
			if sawInfo || len(body) < leastInfo || order.Uint32(body) != magic || order.Uint32(body[4:]) != version {
				return nil, bad(at, "an INFO of another version or byte order")
			}
			sawInfo = true
			s.Info = info(body)
		case msgDone:
			if len(body) < leastDone {
				return nil, bad(at, "a short DONE")
			}
			sawDone = true
			u := func(n int) uint64 { return order.Uint64(body[8*n:]) }
			s.Done = Done{int32(order.Uint32(body)), u(1), u(2), u(3), u(4), u(5), u(6)}
		case msgTask:
			if err := s.task(at, body, end); err != nil {
				return nil, err
			}
		}
		at = end
	}
	if !sawDone {
		return nil, bad(len(data), "the end is missing")
	}
	return s, nil
}

func info(b []byte) Info {
	i := Info{
		Groups: Groups(order.Uint64(b[8:])), Strategy: Strategy(order.Uint64(b[16:])), CPUs: order.Uint32(b[28:]),
		RealtimeNs: order.Uint64(b[32:]), BoottimeNs: order.Uint64(b[40:]), MemTotalBytes: order.Uint64(b[48:]),
		TicksASecond: order.Uint32(b[60:]),
	}
	if len(b) >= leastInfo+16+64+64+32 {
		i.Host, i.Kernel, i.Machine = text(b[104:168]), text(b[168:232]), text(b[232:264])
	}
	return i
}

// task checks one message of a task.
func (s *Snapshot) task(at int, body []byte, end int) error {
	if len(body) < taskHead {
		return bad(at, "a short task")
	}
	pid, tgid, flags := order.Uint32(body), order.Uint32(body[4:]), order.Uint32(body[8:])
	if flags&flagCont == 0 {
		s.tasks = append(s.tasks, Task{s, pid, tgid, at, end})
	} else if n := len(s.tasks); n == 0 || s.tasks[n-1].pid != pid {
		return bad(at, "a continuation of no task")
	} else {
		s.tasks[n-1].to = end
	}
	for attrs := body[taskHead:]; len(attrs) > 0; {
		here := end - len(attrs)
		if len(attrs) < 8 {
			return bad(here, "a cut attribute")
		}
		size, kind := int(order.Uint16(attrs)), order.Uint16(attrs[2:])
		if size < 8 || size%8 != 0 || size > len(attrs) {
			return bad(here, "an attribute of a wrong length")
		}
		a := attrs[:size]
		if n, is := least[kind]; is && size < n {
			return bad(here, "a short record")
		}
		if n, is := leastEntry[kind]; is {
			if size < arrayHead {
				return bad(here, "a short list")
			}
			entry, count := uint64(order.Uint32(a[8:])), uint64(order.Uint32(a[12:]))
			if entry < uint64(n) || entry%8 != 0 || entry*count > uint64(size-arrayHead) {
				return bad(here, "a list of a wrong length")
			}
		}
		if isBlob(kind) && (size < blobHead || uint64(order.Uint32(a[8:])) > uint64(size-blobHead)) {
			return bad(here, "a blob of a wrong length")
		}
		if kind == attrMissing && (size < missingHead || uint64(order.Uint32(a[4:]))*8 > uint64(size-missingHead)) {
			return bad(here, "a list of reasons of a wrong length")
		}
		if kind == attrName && order.Uint32(a[12:]) == 0 {
			if s.names == nil {
				s.names = map[uint32][]byte{}
			}
			s.names[order.Uint32(a[4:])] = blobData(a)
		}
		attrs = attrs[size:]
	}
	return nil
}

func isBlob(kind uint16) bool {
	switch Group(kind) {
	case GroupCmdline, GroupPaths, GroupEnviron, GroupWchan, GroupKstack, GroupLabel:
		return true
	}
	return kind >= attrGroups && kind <= attrName || kind == attrComm
}

func blobData(a []byte) []byte { return a[blobHead : blobHead+order.Uint32(a[8:])] }

// each calls f with the attributes of this type, until f returns false.
func (t Task) each(kind uint16, f func(a []byte) bool) {
	if t.of == nil {
		return
	}
	for at := t.from; at < t.to; {
		size := int(order.Uint32(t.of.data[at:]))
		attrs := t.of.data[at+heads : at+size]
		if order.Uint16(t.of.data[at+4:]) != msgTask {
			attrs = nil
		} else {
			attrs = attrs[taskHead:]
		}
		for len(attrs) > 0 {
			n := order.Uint16(attrs)
			if order.Uint16(attrs[2:]) == kind && !f(attrs[:n]) {
				return
			}
			attrs = attrs[n:]
		}
		at += size
	}
}

// Missing says why a group is not there. If the group is there, at least in part, it is nil.
func (t Task) Missing(g Group) error {
	if t.of == nil || !t.of.Info.Groups.Has(Of(g)) {
		return NotAsked
	}
	var why error
	t.each(attrMissing, func(a []byte) bool {
		for n := order.Uint32(a[4:]); n > 0; n-- {
			if entry := a[missingHead+8*(n-1):]; order.Uint32(entry) == uint32(g) {
				why = Reason(order.Uint32(entry[4:]))
			}
		}
		return why == nil
	})
	return why
}

// why returns the reason why a value is not there.
func (t Task) why(g Group) error {
	if err := t.Missing(g); err != nil {
		return err
	}
	return Unsupported
}

// Text is data of variable length.
type Text struct {
	Data  []byte
	Total int  // bytes of the whole value
	Cut   bool // the whole value is longer than Data
}

// Text is the value of a group of this form: GroupCmdline and GroupEnviron, whose strings each end
// with a NUL; GroupWchan, GroupKstack and GroupLabel. The error is a [Reason].
// Other groups have no text, and the error is Unsupported.
func (t Task) Text(g Group) (Text, error) {
	if !isBlob(uint16(g)) || g == GroupPaths {
		return Text{}, Unsupported
	}
	return t.blob(uint16(g), 0, g)
}

// Path is a path of GroupPaths. Deleted says that it is no longer in the directory tree.
func (t Task) Path(which PathKind) (path string, deleted bool, err error) {
	text, err := t.blob(uint16(GroupPaths), uint32(which), GroupPaths)
	t.each(uint16(GroupPaths), func(a []byte) bool {
		if order.Uint32(a[4:]) == uint32(which) {
			deleted = order.Uint16(a[20:])&4 != 0
		}
		return true
	})
	return string(text.Data), deleted, err
}

// PathKind names a path of GroupPaths.
type PathKind uint32

// The paths of GroupPaths.
const (
	Exe PathKind = iota
	Cwd
	Root
)

func (t Task) blob(kind uint16, which uint32, g Group) (Text, error) {
	var out Text
	var err error
	there := false
	t.each(kind, func(a []byte) bool {
		if order.Uint32(a[4:]) != which {
			return true
		}
		if reason := order.Uint16(a[22:]); reason != 0 {
			err = Reason(reason)
			return false
		}
		if !there {
			out.Data = blobData(a)
		} else {
			out.Data = append(out.Data[:len(out.Data):len(out.Data)], blobData(a)...)
		}
		there, out.Total, out.Cut = true, int(order.Uint32(a[16:])), order.Uint16(a[20:])&1 != 0
		return true
	})
	if err == nil && !there {
		err = t.why(g)
	}
	return out, err
}

// CgroupPath is "controllers:path" of a hierarchy, as in /proc/PID/cgroup; 0 is version 2.
func (t Task) CgroupPath(hierarchy uint32) (string, error) {
	text, err := t.blob(attrPath, hierarchy, GroupCgroup)
	return string(text.Data), err
}

// Name is a name that entries of lists have by number, such as the path of an open file. It is
// empty for number 0, and for a number that the answer does not have.
func (s *Snapshot) Name(number uint32) string { return string(s.names[number]) }

// one is the record of this type.
func (t Task) one(kind uint16) (r record, there bool) {
	t.each(kind, func(a []byte) bool {
		r, there = record{a, order.Uint32(a[attrHead:])}, true
		return false
	})
	return r, there
}

// list is the list of this type.
func (t Task) list(kind uint16) (all []record, there bool) {
	t.each(kind, func(a []byte) bool {
		there = true
		valid, size := order.Uint32(a[4:]), int(order.Uint32(a[8:]))
		entries := a[arrayHead:]
		for n := order.Uint32(a[12:]); n > 0; n-- {
			all = append(all, record{entries[:size], valid})
			entries = entries[size:]
		}
		return true
	})
	return all, there
}

// record is a struct of the format. A member that lies beyond its end is not known.
type record struct {
	data  []byte
	valid uint32
}

func (r record) known(bit uint, end int) bool {
	return end <= len(r.data) && (bit == always || r.valid&(1<<bit) != 0)
}

func (r record) u8(bit uint, at int) (uint8, bool) {
	if !r.known(bit, at+1) {
		return 0, false
	}
	return r.data[at], true
}

func (r record) u16(bit uint, at int) (uint16, bool) {
	if !r.known(bit, at+2) {
		return 0, false
	}
	return order.Uint16(r.data[at:]), true
}

func (r record) u32(bit uint, at int) (uint32, bool) {
	if !r.known(bit, at+4) {
		return 0, false
	}
	return order.Uint32(r.data[at:]), true
}

func (r record) u64(bit uint, at int) (uint64, bool) {
	if !r.known(bit, at+8) {
		return 0, false
	}
	return order.Uint64(r.data[at:]), true
}

func (r record) i32(bit uint, at int) (int32, bool) {
	v, known := r.u32(bit, at)
	return int32(v), known
}

func (r record) i64(bit uint, at int) (int64, bool) {
	v, known := r.u64(bit, at)
	return int64(v), known
}

func (r record) bytes(bit uint, at, size int) ([]byte, bool) {
	if !r.known(bit, at+size) {
		return nil, false
	}
	return r.data[at : at+size], true
}
