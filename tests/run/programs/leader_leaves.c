/* The first thread ends long before the last. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *work(void *argument)
{
	for (int i = 0; i < 50; i++)
		usleep(1000);
	exit(42);
}

int main(void)
{
	pthread_t thread;
	pthread_create(&thread, 0, work, 0);
	pthread_exit(0);
}
