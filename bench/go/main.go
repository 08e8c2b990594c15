// SPDX-License-Identifier: MIT OR Apache-2.0

// The cost of a repeated request in Go: `gopsutil ROUNDS` asks gopsutil for names, parents, states, CPU times and memory
// of all processes, as bench/rust's `refresh` does, and `gopsutil ROUNDS taskdiag` the module in go/. It prints the
// median CPU time of this process and of commands that it runs for a round, in nanoseconds, the number of processes,
// and who answered. The first round is not counted.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strconv"

	"github.com/shirou/gopsutil/v4/process"
	"golang.org/x/sys/unix"
	taskdiag "taskdiag.invalid/go"
)

// The compiler could leave out values that are never read.
var sink float64

var (
	byTaskdiag bool
	client     taskdiag.Client
	from       = "gopsutil"
)

func ask() (int, error) {
	if byTaskdiag {
		return askTaskdiag()
	}
	all, err := process.Processes()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, p := range all {
		// A process that ends meanwhile is not counted.
		name, err := p.Name()
		if err != nil {
			continue
		}
		ppid, err := p.Ppid()
		if err != nil {
			continue
		}
		states, err := p.Status()
		if err != nil {
			continue
		}
		times, err := p.Times()
		if err != nil {
			continue
		}
		memory, err := p.MemoryInfo()
		if err != nil {
			continue
		}
		sink += times.User + float64(memory.RSS) + float64(ppid) + float64(len(name)+len(states))
		n++
	}
	return n, nil
}

func askTaskdiag() (int, error) {
	groups := taskdiag.Of(taskdiag.GroupBase, taskdiag.GroupStat, taskdiag.GroupStatm)
	s, err := client.Get(context.Background(), taskdiag.Request{Groups: groups})
	if err != nil {
		return 0, err
	}
	from = s.From
	for _, p := range s.Processes() {
		name, _ := p.Name()
		ppid, _ := p.Ppid()
		states, _ := p.Status()
		times, _ := p.Times()
		memory, _ := p.MemoryInfo()
		sink += times.User + float64(memory.RSS) + float64(ppid) + float64(len(name)+len(states))
	}
	return len(s.Tasks()), nil
}

func cpuNs() (int64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		return 0, err
	}
	var children unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_CHILDREN, &children)
	return t.Nano() + children.Utime.Nano() + children.Stime.Nano(), err
}

func run(rounds int) (int64, int, error) {
	processes, err := ask()
	if err != nil {
		return 0, 0, err
	}
	times := make([]int64, rounds)
	for i := range times {
		begin, err := cpuNs()
		if err != nil {
			return 0, 0, err
		}
		if processes, err = ask(); err != nil {
			return 0, 0, err
		}
		end, err := cpuNs()
		if err != nil {
			return 0, 0, err
		}
		times[i] = end - begin
	}
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	return times[rounds/2], processes, nil
}

func main() {
	rounds := 0
	byTaskdiag = len(os.Args) == 3 && os.Args[2] == "taskdiag"
	if len(os.Args) == 2 || byTaskdiag {
		rounds, _ = strconv.Atoi(os.Args[1])
	}
	if rounds < 1 {
		fmt.Fprintln(os.Stderr, "usage: gopsutil ROUNDS [taskdiag]")
		os.Exit(2)
	}
	median, processes, err := run(rounds)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gopsutil:", err)
		os.Exit(1)
	}
	if byTaskdiag {
		fmt.Println(median, processes, from)
		return
	}
	fmt.Println(median, processes)
}
