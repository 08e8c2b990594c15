# SPDX-License-Identifier: MIT OR Apache-2.0
# The processes that peers/main.rs looks at, in namespaces of their own. All processes that this
# starts stand still: none uses CPU time, starts or ends while the tools are compared. MKTASK,
# SCRATCH and OTHER_TTY are in the environment; "ready" on stdout means that all is as it should be.
set -u
cd "$SCRATCH"
exec </dev/null 2>>"$SCRATCH/errors"

# Sockets of this machine itself.
ip link set lo up

# A user whose name is longer than the column USER, and a group likewise.
{ cat /etc/passwd; echo 'averyverylonguser:x:4242:4242::/:/bin/sh'; } >passwd
{ cat /etc/group; echo 'averyverylonggroup:x:4242:'; } >group
mount --bind passwd /etc/passwd
mount --bind group /etc/group

quiet() { "$@" >/dev/null & }
mk() { sleep 100000 | "$MKTASK" "$@" >"facts.$1" & }
as() { setpriv --reuid "$1" --regid "$2" --clear-groups "${@:3}" >/dev/null & }

quiet sleep 7001
quiet nice -n 7 sleep 7002
quiet nice -n -5 sleep 7003
quiet chrt -f 10 sleep 7004
quiet chrt -b 0 sleep 7005
quiet chrt -i 0 sleep 7006
as 4242 4242 sleep 7007
as 4242 4242 setsid sleep 7008
as 1 1 sleep 7009
as nobody nogroup sleep 7010
quiet setsid sleep 7011
# A terminal of their own: a session leader, and a child of it.
quiet setsid -c sh -c 'sleep 7012 & exec sleep 7013' <"$OTHER_TTY"
quiet setsid -c sh -c 'exec sleep 7014' <"$OTHER_TTY"
# A tree: three levels, two children each at the second.
quiet sh -c 'sh -c "sleep 7020 & sleep 7021 & exec sleep 7022" & sh -c "sleep 7023 & exec sleep 7024" & exec sleep 7025'
quiet sleep 7026 with-an-argument-that-is-long with-another-one and-more and-more and-more and-more and-more the-end
quiet sh -c 'true & exec sleep 7027'
quiet sh -c 'kill -STOP $$; exit'
cp "$(command -v sleep)" a-name-of-many-letters
quiet ./a-name-of-many-letters 7028
# A process whose program and working directory are deleted.
mkdir gone
cp "$(command -v sleep)" gone/deleted-program
quiet sh -c 'cd gone && exec ./deleted-program 7031'
# On a busy machine all this takes long.
for i in $(seq 1200); do
	pgrep -x deleted-program >/dev/null && break
	sleep 0.05
done
rm -r gone
quiet env -i ONE=1 TWO=zwei sleep 7029
exec 9<"$SCRATCH/passwd" 8>"$SCRATCH/unlocked"
echo some text >&8
quiet flock -x -o written sleep 7030
# Others have other namespaces.
quiet unshare --uts sleep 7032
quiet unshare --net --ipc sh -c 'sleep 7033 & exec unshare --uts sleep 7034'
exec 9<&- 8>&-
mk threads 3
mk memory
mk stopped
mk creds
mk traced-stopped
mk cmdline 4000
for i in $(seq 1200); do
	sleep 0.05
	facts=$(cat facts.threads facts.memory facts.stopped facts.creds facts.traced-stopped facts.cmdline 2>/dev/null | grep -c pid=)
	[ "$facts" = 6 ] && break
done
sleep 0.5
echo "ready facts=$facts"
