// SPDX-License-Identifier: MIT OR Apache-2.0
/* Tasks that come, go and change in every possible way, and tasks that wait for them or trace them.
 */
#include "storm.h"

#include <grp.h>

static void *nap(void *arg)
{
	usleep((uintptr_t)arg);
	return NULL;
}

static void *exec_from_thread(void *arg)
{
	char *argv[] = { "storm", "--nothing", NULL };

	execv("/proc/self/exe", argv);
	return arg;
}

/* Lives one short life of one of many kinds. */
static void live(void)
{
	pthread_t t[8];
	int n = rnd() % 8, fd;

	switch (rnd() % 11) {
	case 0: { /* another program in our place */
		char *argv[] = { "storm", "--nothing", NULL };

		execv("/proc/self/exe", argv);
		break;
	}
	case 1: /* the exec comes from a thread, which takes the leader's pid */
		pthread_create(&t[0], NULL, exec_from_thread, NULL);
		pause();
		break;
	case 2: /* the leader goes first */
		for (int i = 0; i < n; i++)
			pthread_create(&t[i], NULL, nap, (void *)(uintptr_t)(rnd() % 3000));
		syscall(SYS_exit, 0);
		break;
	case 3: /* files of one's own, then changed */
		for (int i = 0; i < n; i++)
			pthread_create(&t[i], NULL, nap, (void *)(uintptr_t)(rnd() % 3000));
		unshare(CLONE_FILES | CLONE_FS);
		for (int i = 0; i < 50; i++) {
			fd = open("/dev/null", O_RDONLY);
			if (rnd() % 2)
				close(fd);
		}
		break;
	case 4: /* namespaces */
		unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC);
		if (fork() == 0) {
			if (mount("proc", "/proc", "proc", 0, rnd() % 2 ? "hidepid=2" : NULL) == 0)
				fd = open("/proc/self/stat", O_RDONLY);
			_exit(0);
		}
		wait(NULL);
		break;
	case 5: /* a user namespace, a session, another user */
		if (rnd() % 2)
			unshare(CLONE_NEWUSER);
		else if (setuid(1000 + rnd() % 5))
			break;
		setsid();
		break;
	case 6: /* an orphan, with children of its own */
		for (int i = 0; i < n; i++)
			if (fork() == 0) {
				usleep(rnd() % 2000);
				_exit(0);
			}
		break;
	case 7: { /* memory, mapped and gone, some of it swapped where there is swap */
		size_t size = (1 + rnd() % 64) * 65536;
		char *m = mmap(NULL, size, PROT_READ | PROT_WRITE,
			       (rnd() % 2 ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);

		if (m == MAP_FAILED)
			break;
		for (size_t i = 0; i < size; i += 4096)
			m[i] = 1;
		madvise(m, size, MADV_PAGEOUT);
		mprotect(m + size / 2, 4096, PROT_READ);
		munmap(m, size / 4);
		break;
	}
	case 8: { /* names */
		char name[16] = { 0 };

		for (int i = 0; i < 15; i++)
			name[i] = rnd();
		prctl(PR_SET_NAME, name);
		break;
	}
	case 9: { /* rights that go as soon as they are there, with few groups and many */
		gid_t groups[64];

		for (int i = 0; i < 64; i++)
			groups[i] = 1000 + rnd() % 1000;
		for (int i = 0; i < 100; i++)
			setgroups(1 + rnd() % 64, groups);
		break;
	}
	default:
		usleep(rnd() % 1000);
	}
	_exit(0);
}

/* Forks, and waits for the children in every way there is. */
long forks(void)
{
	long rounds = 0;

	for (; going(); rounds++) {
		int n = 1 + rnd() % 12;
		pid_t last = 0, group = 0;
		siginfo_t info;

		for (int i = 0; i < n; i++) {
			uint64_t seed = rnd();
			pid_t pid = fork();

			if (pid == 0) {
				seed_with(seed);
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				if (rnd() % 4 == 0)
					setpgid(0, 0);
				if (rnd() % 8 == 0)
					raise(SIGSTOP);
				live();
			}
			if (pid > 0) {
				last = pid;
				group = rnd() % 4 ? group : pid;
			}
		}
		for (int tries = 0; tries < 400; tries++) {
			pid_t pid;

			kill(-getpgrp(), SIGCONT);
			switch (rnd() % 6) {
			case 0:
				pid = waitpid(-1, NULL, WNOHANG | WUNTRACED | WCONTINUED);
				break;
			case 1:
				waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL);
				pid = waitpid(-1, NULL, WNOHANG | __WALL);
				break;
			case 2:
				pid = waitpid(last, NULL, WNOHANG | __WALL);
				break;
			case 3:
				pid = waitpid(group ? -group : 0, NULL, WNOHANG);
				if (pid < 0)
					pid = 0;
				break;
			case 4:
				pid = waitpid(-1, NULL, WNOHANG | __WNOTHREAD);
				break;
			default:
				pid = waitpid(-1, NULL, WNOHANG | __WCLONE);
				pid = 0;
			}
			if (pid < 0 && errno == ECHILD && waitpid(-1, NULL, WNOHANG | __WALL) < 0)
				break;
			if (pid == 0)
				usleep(200);
		}
	}
	return rounds;
}

/* Traces tasks: it attaches, stops, waits, steps, and lets go or kills. */
long traces(void)
{
	long rounds = 0;

	for (; going(); rounds++) {
		pid_t kids[16];
		int status;

		for (int i = 0; i < 16; i++) {
			kids[i] = fork();
			if (kids[i] == 0) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				if (i % 2)
					ptrace(PTRACE_TRACEME);
				for (int k = 0; k < 20; k++) {
					raise(i % 2 ? SIGSTOP : SIGUSR1);
					usleep(500);
				}
				_exit(0);
			}
			if (i % 2 == 0)
				ptrace(PTRACE_SEIZE, kids[i], 0, PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXIT);
		}
		for (int n = 0; n < 200; n++) {
			pid_t pid = waitpid(rnd() % 4 ? -1 : kids[rnd() % 16], &status, __WALL | WNOHANG);

			if (pid <= 0) {
				if (pid < 0 && errno == ECHILD)
					break;
				usleep(100);
			} else if (WIFSTOPPED(status)) {
				if (rnd() % 16 == 0)
					ptrace(PTRACE_DETACH, pid, 0, SIGCONT);
				else
					ptrace(rnd() % 8 ? PTRACE_CONT : PTRACE_SYSCALL, pid, 0, 0);
			}
		}
		for (int i = 0; i < 16; i++)
			kill(kids[i], SIGKILL);
		/* A killed tracee still stops at its exit if the tracer requested that. */
		for (pid_t pid; (pid = waitpid(-1, &status, __WALL)) > 0;)
			if (WIFSTOPPED(status))
				ptrace(PTRACE_CONT, pid, 0, 0);
	}
	return rounds;
}
