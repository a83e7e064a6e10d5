/* A tree of processes, each of which says with its exit code that all below it were right. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int tree(int depth)
{
	for (int i = 0; depth > 0 && i < 3; i++) {
		pid_t child = fork();
		if (child == 0)
			_exit(tree(depth - 1) ? 7 : 8);
		int status;
		if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7)
			return 0;
	}
	return 1;
}

int main(void)
{
	return tree(3) ? 42 : 1;
}
