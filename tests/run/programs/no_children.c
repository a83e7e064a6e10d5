/* A process that made no children has none to wait for, and no time of children. */
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

int main(void)
{
	struct rusage used;
	sigset_t pending;
	if (wait(0) != -1 || errno != ECHILD)
		return 1;
	if (getrusage(RUSAGE_CHILDREN, &used) || used.ru_maxrss || used.ru_utime.tv_usec)
		return 2;
	if (sigpending(&pending) || sigismember(&pending, SIGCHLD))
		return 3;
	return 42;
}
