/* Starts a program in a way of which not much is usual: gives WHAT PROGRAM ARGUMENT... */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void ignore_and_block(void)
{
	sigset_t set;
	const int ignored[] = {SIGINT, SIGPIPE, SIGCHLD, SIGTTOU, SIGHUP, SIGRTMIN + 1, SIGRTMAX};
	const int blocked[] = {SIGUSR1, SIGUSR2, SIGCHLD, SIGTERM, SIGRTMIN + 3};
	for (unsigned i = 0; i < sizeof ignored / sizeof *ignored; i++)
		signal(ignored[i], SIG_IGN);
	sigemptyset(&set);
	for (unsigned i = 0; i < sizeof blocked / sizeof *blocked; i++)
		sigaddset(&set, blocked[i]);
	sigprocmask(SIG_BLOCK, &set, 0);
	raise(SIGUSR2);
	raise(SIGRTMIN + 3);
}

static void block_all(void)
{
	sigset_t set;
	sigfillset(&set);
	sigprocmask(SIG_BLOCK, &set, 0);
}

static void open_many(void)
{
	int pair[2];
	int file = open("words", O_RDWR | O_CREAT | O_APPEND, 0600);
	if (write(file, "some words\n", 11) != 11 || ftruncate(file, 11))
		exit(1);
	lseek(file, 5, SEEK_SET);
	dup2(file, 9);
	dup2(file, 200);
	close(file);
	if (pipe2(pair, O_NONBLOCK))
		exit(1);
	dup2(open(".", O_RDONLY | O_DIRECTORY), 77);
	fcntl(dup(9), F_SETFD, FD_CLOEXEC);
}

static void limit(int resource, rlim_t most)
{
	struct rlimit limit = {most, most};
	if (setrlimit(resource, &limit))
		exit(1);
}

static void limit_all(void)
{
	limit(RLIMIT_FSIZE, 65536);
	limit(RLIMIT_AS, 2l << 30);
	limit(RLIMIT_DATA, 1l << 30);
	limit(RLIMIT_STACK, 1 << 20);
	limit(RLIMIT_MEMLOCK, 0);
	limit(RLIMIT_CORE, 0);
	limit(RLIMIT_SIGPENDING, 0);
	limit(RLIMIT_MSGQUEUE, 0);
	limit(RLIMIT_NOFILE, 64);
}

static void odds(void)
{
	cpu_set_t processors;
	struct sched_param parameter = {0};
	CPU_ZERO(&processors);
	CPU_SET(0, &processors);
	umask(027);
	setpgid(0, 0);
	setpriority(PRIO_PROCESS, 0, 5);
	sched_setscheduler(0, SCHED_BATCH, &parameter);
	sched_setaffinity(0, sizeof processors, &processors);
	syscall(SYS_ioprio_set, 1, 0, 3 << 13);
	personality(ADDR_NO_RANDOMIZE);
	prctl(PR_SET_TIMERSLACK, 123456);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_PDEATHSIG, SIGUSR1);
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	alarm(1000);
}

int main(int count, char **words)
{
	const char *what = count > 2 ? words[1] : "";
	/* The test runner may have inherited others. */
	for (int descriptor = 3; descriptor < 64; descriptor++)
		close(descriptor);
	if (!strcmp(what, "signals"))
		ignore_and_block();
	else if (!strcmp(what, "no-signals"))
		block_all();
	else if (!strcmp(what, "descriptors"))
		open_many();
	else if (!strcmp(what, "no-descriptors"))
		limit(RLIMIT_NOFILE, 4);
	else if (!strcmp(what, "small-files"))
		limit(RLIMIT_FSIZE, 8192);
	else if (!strcmp(what, "no-processes"))
		limit(RLIMIT_NPROC, 1);
	else if (!strcmp(what, "limits"))
		limit_all();
	else if (!strcmp(what, "odds"))
		odds();
	else if (!strcmp(what, "session"))
		setsid();
	else if (!strcmp(what, "no-directory") && (mkdir("gone", 0700) || chdir("gone") || rmdir("../gone")))
		return 1;
	else if (!strcmp(what, "variables"))
		(setenv("A", "", 1), setenv("B", "\xff\xfe = \n", 1), setenv("LD_PRELOAD", "", 1), setenv("PEGEL", "x", 1));
	execv(words[2], words + 2);
	perror(words[2]);
	return 1;
}
