#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Times the start of `perf record -a` with a load of idle tasks, in ways that take turns:
#
#	rounds.sh DIR ROUNDS TASKS PROCESSES WAY...
#
# contrib/perf/measure runs it, on this machine or in a machine of the lab, which has no Python. DIR has the programs perf-unpatched,
# perf-patched, load, measure and began. TASKS threads of PROCESSES processes are made before the first round, and
# ended after the last one. Ways:
#
#	unpatched	perf as it is
#	proc		the patched perf, told to read /proc
#	kernel		the patched perf, from /proc/task_diag
#	command		the patched perf, from the command in $ANSWER
#
# It prints "way what round ns user_us system_us bytes", with tabs; round 0 is a warm-up:
#
#	record		from the start of perf to the start of its workload; user and system time are those of perf and of
#			what it started, to its end; bytes of perf.data
#	synthesize	the function that makes the events, which are only counted, as `perf bench internals synthesize`
#			says; the number of events in place of bytes
set -eu
dir=$1 rounds=$2 tasks=$3 processes=$4
shift 4
tab=$(printf '\t')
tmp=$(mktemp -d)
mkfifo "$tmp/end" "$tmp/ready"
trap 'exec 4>&-; wait; rm -r "$tmp"' EXIT
"$dir/load" threads "$tasks" "$processes" <"$tmp/end" >"$tmp/ready" &
exec 4>"$tmp/end"	# the load ends when this is closed
read -r said <"$tmp/ready" || said=
[ "$said" = ready ] || { echo "rounds.sh: no load, no measurement" >&2; exit 1; }

# The cost of a command, as printed by measure; the output of the command is in $tmp/out. It fails
# if the command did, or if perf did without the answer.
run() {
	if ! timeout 300 "$dir/measure" "$tmp/out" "$@" 4>&- 2>"$tmp/said" >"$tmp/cost" ||
		[ "$(cut -d' ' -f5 "$tmp/cost")" != 0 ] || grep "Threads come from" "$tmp/said" >&2; then
		echo "rounds.sh: $way, round $round failed: $*" >&2
		cat "$tmp/said" >&2
		exit 1
	fi
}

# A row: its subject, the time in ns, and a size.
row() {
	read -r _ user system _ <"$tmp/cost"
	echo "$way$tab$1$tab$round$tab$2$tab$user$tab$system$tab$3"
}

round=0
while [ "$round" -le "$rounds" ]; do
	for way in "$@"; do
		perf=$dir/perf-patched
		unset PERF_TASK_DIAG
		case $way in
		unpatched) perf=$dir/perf-unpatched ;;
		proc) export PERF_TASK_DIAG= ;;
		kernel) [ -e /proc/task_diag ] || { echo "rounds.sh: no /proc/task_diag" >&2; exit 1; } ;;
		command) export PERF_TASK_DIAG="$ANSWER" ;;
		*) echo "rounds.sh: $way: no such way" >&2; exit 2 ;;
		esac
		# Without build ids (-B), which are read after the workload and not before it.
		start=$("$dir/began")
		run "$perf" record -a -B -N -e cpu-clock -F 1 -o "$tmp/data" "$dir/began"
		row record $(($(head -n 1 "$tmp/out") - start)) $(($(wc -c <"$tmp/data")))
		rm -f "$tmp/data"
		run "$perf" bench internals synthesize --mt --min-threads 1 --max-threads 1 --multi-iterations 1
		us=$(sed -n 's/.*synthesis took: \([0-9]*\)\..*/\1/p' "$tmp/out")
		row synthesize $((us * 1000)) "$(sed -n 's/.*num. events: \([0-9]*\)\..*/\1/p' "$tmp/out")"
	done
	round=$((round + 1))
done
exec 4>&-
wait
