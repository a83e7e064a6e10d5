/* A thread that is not the first executes another program: all others end, and the process keeps its number. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *path;

static void *sleep_on(void *argument)
{
	pause();
	return argument;
}

static void *go(void *argument)
{
	char number[20];
	snprintf(number, sizeof number, "%d", getpid());
	execl(path, path, number, (char *)0);
	exit(1);
}

int main(int count, char **words)
{
	if (count > 1)
		return atoi(words[1]) == getpid() ? 42 : 2;
	path = words[0];
	pthread_t thread;
	for (int i = 0; i < 3; i++)
		pthread_create(&thread, 0, sleep_on, 0);
	pthread_create(&thread, 0, go, 0);
	pause();
	return 3;
}
