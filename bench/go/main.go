// SPDX-License-Identifier: MIT OR Apache-2.0

// The cost of a repeated request with gopsutil: `gopsutil ROUNDS` asks for names, parents, states, CPU times and memory
// of all processes, as bench/rust's `refresh` does. It prints the median CPU time of this process for a round, in
// nanoseconds, and the number of processes. The first round is not counted.
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"

	"github.com/shirou/gopsutil/v4/process"
	"golang.org/x/sys/unix"
)

// Values that nobody reads could be left out by the compiler.
var sink float64

func ask() (int, error) {
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

func cpuNs() (int64, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return t.Nano(), err
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
	if len(os.Args) == 2 {
		rounds, _ = strconv.Atoi(os.Args[1])
	}
	if rounds < 1 {
		fmt.Fprintln(os.Stderr, "usage: gopsutil ROUNDS")
		os.Exit(2)
	}
	median, processes, err := run(rounds)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gopsutil:", err)
		os.Exit(1)
	}
	fmt.Println(median, processes)
}
