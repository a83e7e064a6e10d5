/* Four threads and the first one make calls until somebody ends it. */
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *work(void *argument)
{
	for (;;) {
		for (volatile int i = 0; i < 20000; i++)
			;
		syscall(SYS_getppid);
	}
	return argument;
}

int main(void)
{
	pthread_t thread;
	for (int i = 0; i < 4; i++)
		pthread_create(&thread, 0, work, 0);
	work(0);
}
