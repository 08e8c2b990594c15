// SPDX-License-Identifier: MIT OR Apache-2.0

package taskdiag

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// Strategy says which tasks a request is about.
type Strategy uint64

// The strategies. With Pid, they are about this process.
const (
	AllProcesses Strategy = iota
	OneProcess            // the process that Pid belongs to
	AllThreads            // all threads of all processes
	Children              // the processes whose parent is Pid
	Threads               // the threads of the process that Pid belongs to
)

var strategies = [...]string{"all", "one", "all-thread", "children", "thread"}

// Request asks for groups of tasks. An answer holds what the caller may see.
type Request struct {
	Groups   Groups
	Strategy Strategy
	Pid      uint32 // 0 for the strategies of all tasks
}

// Client asks taskdiagd, the service for callers without privileges, if it answers the request, and
// runs the command `taskdiag dump` otherwise. The zero value is ready for use, and a client may be
// used by several goroutines.
type Client struct {
	// Socket of the service. Empty: TASKDIAG_SOCKET, or /run/taskdiag/socket. "-": none.
	Socket string
	// Command to run. Empty: "taskdiag", from PATH.
	Command string
	// MaxAge is how old an answer of the service may be, at most a second. Callers that accept an
	// older answer share a walk over the processes.
	MaxAge time.Duration
	// MaxBytes is the longest answer that is read. 0: 1 GiB.
	MaxBytes int64

	slowUntil atomic.Int64
}

const (
	serviceMagic, serviceVersion = 0x53444154, 1
	patience                     = 2 * time.Second
	slow                         = 5 * time.Second
	inlineMax                    = 64 << 10
)

var refusals = map[uint16]string{
	1: "it does not answer such a request", 2: "it cannot identify this process", 3: "this process is in another pid namespace",
	4: "this process is in another user namespace", 5: "the /proc of this process is not the plain one",
	6: "this process is confined", 7: "it is busy", 8: "it cannot use BPF", 9: "it is turned off",
	10: "this process is in another time namespace", 11: "this process has too many threads", 12: "the answer would be too long",
}

// Get asks for an answer. Its error says what to do if there is neither a service nor a command;
// an answer that is damaged or cut is an error that wraps [ErrFormat].
func (c *Client) Get(ctx context.Context, r Request) (*Snapshot, error) {
	if r.Strategy > Threads {
		return nil, fmt.Errorf("taskdiag: unknown strategy %d", r.Strategy)
	}
	from := "service"
	data, refused := c.fromService(ctx, r)
	if refused != nil {
		from = "command"
		// The connection has the deadline of the context, and may notice it first.
		if d, has := ctx.Deadline(); has && !time.Now().Before(d) {
			return nil, context.DeadlineExceeded
		} else if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var err error
		if data, err = c.fromCommand(ctx, r); err != nil {
			return nil, fmt.Errorf("taskdiag: %w (the service: %v)", err, refused)
		}
	}
	s, err := Parse(data)
	if err == nil {
		s.From = from
	}
	return s, err
}

func (c *Client) most() int64 {
	if c.MaxBytes > 0 {
		return c.MaxBytes
	}
	return 1 << 30
}

// fromService asks taskdiagd.
func (c *Client) fromService(ctx context.Context, r Request) ([]byte, error) {
	public := map[Strategy]Groups{AllProcesses: publicOfProcesses, AllThreads: publicOfThreads}[r.Strategy]
	if r.Groups == 0 || !public.Has(r.Groups) {
		return nil, errors.New("it does not show these groups of these tasks")
	}
	path := c.Socket
	if path == "" {
		path = os.Getenv("TASKDIAG_SOCKET")
	}
	if path == "" {
		path = "/run/taskdiag/socket"
	}
	if path == "-" {
		return nil, errors.New("not used")
	}
	if time.Now().UnixNano() < c.slowUntil.Load() {
		return nil, errors.New("it was slow a moment ago")
	}
	// Where /proc hides processes, the service would show more than /proc does.
	proof, err := os.Open("/proc/1/stat")
	if err != nil {
		return nil, err
	}
	proof.Close()
	until := time.Now().Add(patience)
	if d, has := ctx.Deadline(); has && d.Before(until) {
		until = d
	}
	conn, err := (&net.Dialer{Deadline: until}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-ctx.Done():
			conn.SetDeadline(time.Unix(1, 0))
		case <-stop:
		}
	}()
	conn.SetDeadline(until)
	data, err := c.ask(conn.(*net.UnixConn), r)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.slowUntil.Store(time.Now().Add(slow).UnixNano())
	}
	return data, err
}

func (c *Client) ask(conn *net.UnixConn, r Request) ([]byte, error) {
	if err := trusted(conn); err != nil {
		return nil, err
	}
	age := c.MaxAge.Milliseconds()
	if age < 0 {
		age = 0
	} else if age > 1000 {
		age = 1000
	}
	if _, err := conn.Write(question(r, uint32(age))); err != nil {
		return nil, err
	}
	head, oob := make([]byte, 16), make([]byte, 128)
	n, oobn, flags, _, err := conn.ReadMsgUnix(head, oob)
	file := received(oob[:oobn])
	if file != nil {
		defer file.Close()
	}
	if err != nil {
		return nil, err
	}
	if n < len(head) {
		if _, err := io.ReadFull(conn, head[n:]); err != nil {
			return nil, err
		}
	}
	kind, why, size := order.Uint16(head[4:]), order.Uint16(head[6:]), order.Uint64(head[8:])
	switch {
	case order.Uint32(head) != serviceMagic || flags&syscall.MSG_CTRUNC != 0:
	case kind == 1 && size <= inlineMax:
		data := make([]byte, size)
		_, err := io.ReadFull(conn, data)
		return data, err
	case kind == 2 && file != nil && size <= uint64(c.most()):
		// The service cuts the file to free its memory, after some seconds.
		data := make([]byte, size)
		if _, err := file.ReadAt(data, 0); err != nil {
			return nil, err
		}
		if s, err := file.Stat(); err != nil || s.Size() != int64(size) {
			return nil, errors.New("it took back the answer before it was read")
		}
		return data, nil
	case kind == 2 && file != nil:
		return nil, fmt.Errorf("its answer has %d bytes, and MaxBytes is %d", size, c.most())
	case kind == 3:
		return nil, fmt.Errorf("it refused: %s", refusals[why])
	}
	return nil, errors.New("its reply does not follow the protocol")
}

// trusted refuses a listener that is neither root nor the caller.
func trusted(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *syscall.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("its socket belongs to user %d, who is neither root nor this user", cred.Uid)
	}
	return nil
}

// question is a message to the service: its head, then a request of the format.
func question(r Request, ageMs uint32) []byte {
	const length = 16 + 48
	q := make([]byte, 16+length)
	order.PutUint32(q, serviceMagic)
	order.PutUint16(q[4:], serviceVersion)
	order.PutUint32(q[8:], ageMs)
	order.PutUint32(q[12:], length)
	m := q[16:]
	order.PutUint32(m, length)
	order.PutUint16(m[4:], 16) // TASK_DIAG_CMD_GET
	order.PutUint16(m[6:], 1)  // NLM_F_REQUEST
	order.PutUint64(m[16:], uint64(r.Groups))
	order.PutUint64(m[24:], uint64(r.Strategy))
	order.PutUint32(m[32:], r.Pid)
	return q
}

// received is the file that came with a message. Others are closed.
func received(oob []byte) *os.File {
	var file *os.File
	messages, _ := syscall.ParseSocketControlMessage(oob)
	for i := range messages {
		fds, _ := syscall.ParseUnixRights(&messages[i])
		for _, fd := range fds {
			if file == nil {
				file = os.NewFile(uintptr(fd), "answer of taskdiagd")
			} else {
				syscall.Close(fd)
			}
		}
	}
	return file
}

// fromCommand runs `taskdiag dump`.
func (c *Client) fromCommand(ctx context.Context, r Request) ([]byte, error) {
	name := c.Command
	if name == "" {
		name = "taskdiag"
	}
	args := []string{"dump", "--groups", r.Groups.String(), "--strategy", strategies[r.Strategy]}
	if r.Pid != 0 {
		args = append(args, "--pid", strconv.FormatUint(uint64(r.Pid), 10))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var says limited
	cmd.Stderr = &says
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w; install taskdiag, or set Command", err)
	}
	data, err := io.ReadAll(io.LimitReader(out, c.most()+1))
	if err == nil && int64(len(data)) > c.most() {
		err = fmt.Errorf("the answer of %s is longer than MaxBytes, %d", name, c.most())
	}
	if err != nil {
		cancel()
	}
	ended := cmd.Wait()
	if err != nil {
		return nil, err
	}
	// 3: the answer lacks something that was requested, and says what.
	if ended != nil && cmd.ProcessState.ExitCode() != 3 {
		return nil, fmt.Errorf("%s dump: %w: %s", name, ended, bytes.TrimSpace(says.text))
	}
	return data, nil
}

// limited is a writer that keeps the first 2 KiB.
type limited struct{ text []byte }

func (l *limited) Write(p []byte) (int, error) {
	if room := 2048 - len(l.text); room > 0 {
		l.text = append(l.text, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}
