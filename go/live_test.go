// SPDX-License-Identifier: MIT OR Apache-2.0

package taskdiag

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// program is the path of a program that was built for the tests. The environment has it.
func program(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("%s names no program: make go runs these tests", variable)
	}
	return path
}

// sleeper is a process with odd arguments.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	c := exec.Command("tail")
	c.Args = []string{"a tail", "-f", "/dev/null"}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	// Until exec(2), it has this program's arguments, and while it starts, it takes more memory.
	for i := 0; i < 500; i++ {
		if line, _ := os.ReadFile("/proc/" + strconv.Itoa(c.Process.Pid) + "/cmdline"); bytes.HasPrefix(line, []byte("a tail")) && status(t, c.Process.Pid, "State")[0] == "S" {
			return c
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("it does not begin")
	return nil
}

// status is a line of /proc/PID/status.
func status(t *testing.T, pid int, key string) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, key+":") {
			return strings.Fields(line)[1:]
		}
	}
	return nil
}

func compare(t *testing.T, c *Client, groups Groups, from string) {
	t.Helper()
	child := sleeper(t)
	s, err := c.Get(context.Background(), Request{Groups: groups})
	if err != nil {
		t.Fatal(err)
	}
	if s.From != from {
		t.Fatalf("%s answered", s.From)
	}
	found := false
	for _, p := range s.Processes() {
		if int(p.Pid()) != child.Process.Pid {
			continue
		}
		found = true
		args, err := p.CmdlineSlice()
		if strings.Join(args, "|") != "a tail|-f|/dev/null" && !errors.Is(err, Blocked) {
			t.Errorf("arguments: %q, %v", args, err)
		}
		name, err := p.Name()
		if want := status(t, child.Process.Pid, "Name"); name != want[0] || err != nil {
			t.Errorf("name: %q, %v; %v", name, err, want)
		}
		if ppid, err := p.Ppid(); int(ppid) != os.Getpid() || err != nil {
			t.Errorf("parent: %d, %v", ppid, err)
		}
		if uids, err := p.Uids(); len(uids) != 4 || int(uids[0]) != os.Getuid() || err != nil {
			t.Errorf("users: %v, %v", uids, err)
		}
		m, err := p.MemoryInfo()
		kib, _ := strconv.Atoi(status(t, child.Process.Pid, "VmSize")[0])
		if m.VMS != uint64(kib)<<10 || m.RSS == 0 || err != nil {
			t.Errorf("memory: %+v, %v; %d KiB", m, err, kib)
		}
		began, err := p.CreateTime()
		if ago := time.Since(time.UnixMilli(began)); ago < -time.Second || ago > time.Minute || err != nil {
			t.Errorf("it began %v ago, %v", ago, err)
		}
		if n, err := p.NumThreads(); n != 1 || err != nil {
			t.Errorf("threads: %d, %v", n, err)
		}
		if state, err := p.Status(); state[0] != "sleep" || err != nil {
			t.Errorf("state: %v, %v", state, err)
		}
		if _, err := p.Times(); err != nil {
			t.Error(err)
		}
		_, err = p.IOCounters()
		if asked := groups.Has(Of(GroupIo)); asked != (err == nil) || !asked && !errors.Is(err, NotAsked) {
			t.Errorf("I/O: %v", err)
		}
		if groups.Has(Of(GroupPaths)) {
			exe, err := p.Exe()
			if want, _ := os.Readlink("/proc/" + strconv.Itoa(child.Process.Pid) + "/exe"); exe != want || err != nil {
				t.Errorf("program: %q, %v; %q", exe, err, want)
			}
		}
	}
	if !found {
		t.Error("the child is not there")
	}
}

func TestTheCommandAnswersAsProcDoes(t *testing.T) {
	c := &Client{Socket: "-", Command: program(t, "TASKDIAG_BIN")}
	compare(t, c, ForProcesses, "command")
	compare(t, c, ForProcesses|Of(GroupIo, GroupPaths, GroupFdCount, GroupSched), "command")
}

func TestThreadsOfOneProcess(t *testing.T) {
	c := &Client{Command: program(t, "TASKDIAG_BIN")}
	s, err := c.Get(context.Background(), Request{Of(GroupBase), Threads, uint32(os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	names, _ := os.ReadDir("/proc/self/task")
	if n := len(s.Tasks()); n < 2 || n > len(names)+8 || s.Tasks()[0].Tgid() != uint32(os.Getpid()) {
		t.Errorf("%d threads, /proc has %d", n, len(names))
	}
}

// service starts taskdiagd.
func service(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	d := exec.Command(program(t, "TASKDIAGD_BIN"), "--socket", path)
	var says bytes.Buffer
	d.Stderr = &says
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Process.Kill(); d.Wait() })
	for i := 0; i < 1000; i++ {
		if conn, err := net.Dial("unix", path); err == nil {
			conn.Close()
			return path
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("taskdiagd does not listen: %s", says.String())
	return ""
}

func TestTheServiceAnswersAsProcDoes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("taskdiagd needs root to load BPF programs")
	}
	path := service(t)
	c := &Client{Socket: path, Command: program(t, "TASKDIAG_BIN")}
	if _, err := c.fromService(context.Background(), Request{Groups: ForProcesses}); err != nil && strings.Contains(err.Error(), "cannot use BPF") {
		t.Skip(err)
	}
	compare(t, c, ForProcesses, "service")
	// Data that the service does not show comes from the command.
	compare(t, c, ForProcesses|Of(GroupIo), "command")
	s, err := c.Get(context.Background(), Request{Groups: Of(GroupBase), Strategy: AllThreads})
	if err != nil || s.From != "service" || s.Info.Strategy != AllThreads {
		t.Errorf("threads: %v, %v", s, err)
	}
}

// An answer that is longer than its limit, a service that does not answer, and nothing to ask.
func TestErrorsSayWhatToDo(t *testing.T) {
	c := &Client{Socket: "-", Command: "/nonexistent/taskdiag"}
	if _, err := c.Processes(context.Background(), 0); err == nil || !strings.Contains(err.Error(), "install taskdiag") {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c.Socket = path
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := c.Processes(ctx, 0); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 2*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	c = &Client{Socket: "-", Command: program(t, "TASKDIAG_BIN"), MaxBytes: 100}
	if _, err := c.Processes(context.Background(), 0); err == nil || !strings.Contains(err.Error(), "longer than MaxBytes") {
		t.Error(err)
	}
	c.MaxBytes = 0
	s, err := c.Get(context.Background(), Request{Of(GroupBase), OneProcess, 4_000_000})
	if err == nil && len(s.Tasks()) != 0 || err != nil && !strings.Contains(err.Error(), "4000000") {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := (&Client{Socket: "-", Command: "echo"}).Processes(context.Background(), 0); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
}

// A service whose replies do not follow the protocol is not believed, and no file of it stays open.
func TestRepliesThatDoNotFollowTheProtocolAreErrors(t *testing.T) {
	reply := func(kind, why uint16, size uint64, rest int) []byte {
		b := make([]byte, 16+rest)
		order.PutUint32(b, serviceMagic)
		order.PutUint16(b[4:], kind)
		order.PutUint16(b[6:], why)
		order.PutUint64(b[8:], size)
		return b
	}
	for _, bytes := range [][]byte{nil, reply(1, 0, 1<<40, 0), reply(2, 0, 8, 0), reply(3, 99, 0, 0), reply(9, 0, 0, 0), make([]byte, 16),
		reply(1, 0, 64, 10), reply(1, 0, 8, 8)} {
		path := filepath.Join(t.TempDir(), "socket")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			conn, err := l.Accept()
			if err == nil {
				conn.Read(make([]byte, 100))
				conn.Write(bytes)
				conn.Close()
			}
		}()
		c := &Client{Socket: path, Command: "/nonexistent"}
		if s, err := c.Processes(context.Background(), 0); err == nil {
			t.Errorf("%q: %v", bytes, s)
		}
		l.Close()
	}
}
