/* Says everything that a program can find out about how it was started. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void words(int count, char **words)
{
	for (int i = 0; i < count; i++)
		printf("word %d: %s\n", i, words[i]);
	for (char **entry = environ; *entry; entry++)
		printf("variable: %s\n", *entry);
	printf("executed as %s, secure %lu\n", (char *)getauxval(AT_EXECFN), getauxval(AT_SECURE));
}

/* A leader has its own number, which is another one each time. */
static void place(const char *name, pid_t number)
{
	if (number == getpid())
		printf("%s: leader\n", name);
	else
		printf("%s: %d\n", name, number);
}

static void relations(void)
{
	struct rusage used;
	char path[4096];
	printf("parent: %d\n", getppid());
	place("group", getpgrp());
	place("session", getsid(0));
	printf("directory: %s\n", getcwd(path, sizeof path) ? path : strerror(errno));
	printf("children: %d", waitpid(-1, 0, WNOHANG));
	printf(" %s", strerror(errno));
	getrusage(RUSAGE_CHILDREN, &used);
	printf(", their time %ld\n", (long)(used.ru_utime.tv_usec + used.ru_stime.tv_usec));
}

static void signals(void)
{
	unsigned long long blocked = 0, pending = 0;
	struct { void *handler; unsigned long flags; void *restorer; unsigned long long mask; } action;
	stack_t stack;
	syscall(SYS_rt_sigprocmask, SIG_BLOCK, 0, &blocked, 8);
	syscall(SYS_rt_sigpending, &pending, 8);
	printf("blocked %llx, pending %llx, not default:", blocked, pending);
	for (int signal = 1; signal <= 64; signal++) {
		memset(&action, 0, sizeof action);
		if (syscall(SYS_rt_sigaction, signal, 0, &action, 8) == 0 && action.handler)
			printf(" %d=%ld", signal, (long)action.handler);
	}
	sigaltstack(0, &stack);
	printf(", stack %d\n", stack.ss_flags);
}

static void descriptors(void)
{
	for (int fd = 0; fd < 1024; fd++) {
		struct stat found;
		int flags = fcntl(fd, F_GETFD);
		if (flags == -1 || fstat(fd, &found))
			continue;
		long offset = fd > 2 ? lseek(fd, 0, SEEK_CUR) : 0;
		printf("descriptor %d: %x %x type %o at %ld\n", fd, flags, fcntl(fd, F_GETFL),
		       found.st_mode & S_IFMT, offset);
	}
}

static void limits(void)
{
	for (int i = 0; i < RLIM_NLIMITS; i++) {
		struct rlimit limit;
		getrlimit(i, &limit);
		printf("limit %d: %lx %lx\n", i, (long)limit.rlim_cur, (long)limit.rlim_max);
	}
}

static void scheduling(void)
{
	struct sched_param parameter = {0};
	cpu_set_t processors;
	struct itimerval timer;
	int mode = -1;
	CPU_ZERO(&processors);
	sched_getaffinity(0, sizeof processors, &processors);
	sched_getparam(0, &parameter);
	getitimer(ITIMER_REAL, &timer);
	syscall(SYS_get_mempolicy, &mode, 0, 0, 0, 0);
	printf("nice %d, policy %d %d, processors %d, first %d\n", getpriority(PRIO_PROCESS, 0),
	       sched_getscheduler(0), parameter.sched_priority, CPU_COUNT(&processors),
	       CPU_ISSET(0, &processors) != 0);
	printf("disks %ld, memory %d, alarm %s\n", syscall(SYS_ioprio_get, 1, 0), mode,
	       timer.it_value.tv_sec > 900 ? "far" : timer.it_value.tv_sec ? "near" : "none");
}

static void flags(void)
{
	int reaper = -1, death = -1;
	mode_t mask = umask(0);
	prctl(PR_GET_CHILD_SUBREAPER, &reaper);
	prctl(PR_GET_PDEATHSIG, &death);
	printf("umask %o, personality %x, slack %d\n", mask, personality(0xffffffff),
	       prctl(PR_GET_TIMERSLACK));
	printf("reaper %d, death %d, dumpable %d, keeps %d, bits %d, no new rights %d, filter %d, pages %d\n",
	       reaper, death, prctl(PR_GET_DUMPABLE), prctl(PR_GET_KEEPCAPS),
	       prctl(PR_GET_SECUREBITS), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0),
	       prctl(PR_GET_SECCOMP), prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
}

static void files(void)
{
	static const char *const names[] = {"oom_score_adj", "coredump_filter", "comm", "cgroup", "loginuid"};
	static const char *const links[] = {"exe", "cwd", "root", "ns/mnt", "ns/net", "ns/pid", "ns/user"};
	char text[4096], path[64];
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(path, sizeof path, "/proc/self/%s", names[i]);
		int fd = open(path, O_RDONLY);
		ssize_t length = read(fd, text, sizeof text - 1);
		printf("%s: %.*s\n", names[i], length < 0 ? 0 : (int)length, text);
		close(fd);
	}
	for (unsigned i = 0; i < sizeof links / sizeof *links; i++) {
		snprintf(path, sizeof path, "/proc/self/%s", links[i]);
		ssize_t length = readlink(path, text, sizeof text);
		printf("%s: %.*s\n", links[i], length < 0 ? 0 : (int)length, text);
	}
	FILE *status = fopen("/proc/self/status", "r");
	while (status && fgets(text, sizeof text, status))
		for (const char *const *name = (const char *const[]){"Uid", "Gid", "Groups", "Cap", "Threads", "Seccomp", 0}; *name; name++)
			if (!strncmp(text, *name, strlen(*name)))
				fputs(text, stdout);
}

int main(int count, char **arguments)
{
	words(count, arguments);
	relations();
	signals();
	descriptors();
	limits();
	scheduling();
	flags();
	files();
	return 42;
}
