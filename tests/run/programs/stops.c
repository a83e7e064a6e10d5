/* A child is stopped and continued; its parent sees each of it. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	for (int i = 0; i < 20; i++) {
		int pair[2], status;
		char byte;
		if (pipe(pair))
			return 1;
		pid_t child = fork();
		if (child == 0) {
			for (int stop = 0; stop < 2; stop++) {
				raise(SIGSTOP);
				/* What comes next waits until the parent has seen this. */
				if (read(pair[0], &byte, 1) != 1)
					_exit(1);
			}
			_exit(5);
		}
		for (int stop = 0; stop < 2; stop++) {
			if (waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status))
				return 2;
			if (WSTOPSIG(status) != SIGSTOP)
				return 3;
			kill(child, SIGCONT);
			if (waitpid(child, &status, WCONTINUED) != child || !WIFCONTINUED(status))
				return 4;
			if (write(pair[1], "x", 1) != 1)
				return 5;
		}
		if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 5)
			return 6;
		close(pair[0]);
		close(pair[1]);
	}
	return 42;
}
