/* Makes calls whose numbers it knows, in threads, in children and in a program that a child executes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void work(long times)
{
	char bytes[100];
	int from = open("/dev/zero", O_RDONLY), to = open("/dev/null", O_WRONLY);
	for (long i = 0; i < times; i++) {
		struct iovec parts[2] = {{bytes, 3}, {bytes, 4}};
		if (read(from, bytes, 10) != 10 || write(to, bytes, 7) != 7)
			_exit(1);
		if (writev(to, parts, 2) != 7 || pread(from, bytes, 5, 0) != 5)
			_exit(2);
		syscall(SYS_getppid);
		if (read(-1, bytes, 1) != -1)
			_exit(3);
	}
	close(from);
	close(to);
}

static void *thread(void *times)
{
	work((long)times);
	return 0;
}

/* One child after the other: a fork that another child's end interrupts is made twice. */
static void wait_for(pid_t child)
{
	int status;
	if (waitpid(child, &status, 0) != child || status != 0)
		exit(4);
}

static void in_child(long times)
{
	pid_t child = fork();
	if (child == 0) {
		work(times);
		_exit(0);
	}
	wait_for(child);
}

int main(int count, char **words)
{
	if (count > 1) {
		work(atol(words[1]));
		return 0;
	}
	work(100);
	pthread_t threads[4];
	for (long i = 0; i < 4; i++)
		pthread_create(&threads[i], 0, thread, (void *)(10 * i));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], 0);
	in_child(20);
	in_child(30);
	pid_t child = vfork();
	if (child == 0) {
		execl(words[0], words[0], "50", (char *)0);
		_exit(1);
	}
	wait_for(child);
	/* 100 + 0 + 10 + 20 + 30 + 20 + 30 + 50 */
	return 42;
}
