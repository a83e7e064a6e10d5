/* vfork, posix_spawn and clone3, each with an exec behind it. */
#define _GNU_SOURCE
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int ended_with(pid_t child, int code)
{
	int status;
	return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == code;
}

int main(void)
{
	char *const words[] = {"sh", "-c", "exit 9", 0};
	for (int i = 0; i < 5; i++) {
		pid_t child = vfork();
		if (child == 0) {
			execv("/bin/sh", words);
			_exit(1);
		}
		if (!ended_with(child, 9))
			return 1;
		if (posix_spawn(&child, "/bin/sh", 0, 0, words, environ) || !ended_with(child, 9))
			return 2;
		struct clone_args arguments;
		memset(&arguments, 0, sizeof arguments);
		arguments.exit_signal = SIGCHLD;
		child = syscall(SYS_clone3, &arguments, sizeof arguments);
		if (child == 0) {
			execv("/bin/sh", words);
			_exit(1);
		}
		if (!ended_with(child, 9))
			return 3;
	}
	return 42;
}
