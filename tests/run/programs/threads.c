/* Threads come and go while others work. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include <sys/syscall.h>

static atomic_int sum;

static void *work(void *argument)
{
	for (int i = 0; i < 100; i++)
		sum += syscall(SYS_getppid) > 0;
	return argument;
}

int main(void)
{
	for (int round = 0; round < 10; round++) {
		pthread_t threads[8];
		for (int i = 0; i < 8; i++)
			if (pthread_create(&threads[i], 0, work, 0))
				return 1;
		for (int i = 0; i < 8; i++)
			pthread_join(threads[i], 0);
	}
	return sum == 8000 ? 42 : 2;
}
