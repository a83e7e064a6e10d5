/* Two threads wait in nanosleep, one in poll and one in read of a pipe, until the file named by the argument exists;
   then prints how long the calls took: nanosleep, poll, read, in nanoseconds. With a second argument, the threads
   other than the first never return from their calls, and the process ends while they wait. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int pipes[2], endless;
static const char *path;

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1000000000L * time.tv_sec + time.tv_nsec;
}

static void *sleeps(void *taken) {
    struct timespec time = {endless ? 1000 : 3, 0};
    long start = now();
    syscall(SYS_nanosleep, &time, NULL);
    *(long *)taken = now() - start;
    return NULL;
}

static void *polls(void *taken) {
    long start = now();
    poll(NULL, 0, endless ? 1000000 : 3000);
    *(long *)taken = now() - start;
    return NULL;
}

static void *reads(void *taken) {
    char byte;
    long start = now();
    if (read(pipes[0], &byte, 1) != 1) abort();
    *(long *)taken = now() - start;
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[4];
    long taken[4] = {0};
    path = argv[1];
    endless = argc > 2;
    if (pipe(pipes) != 0) return 1;
    pthread_create(&threads[0], NULL, sleeps, &taken[0]);
    pthread_create(&threads[1], NULL, sleeps, &taken[1]);
    pthread_create(&threads[2], NULL, polls, &taken[2]);
    pthread_create(&threads[3], NULL, reads, &taken[3]);
    while (access(path, F_OK) != 0) usleep(10000);
    if (endless) {
        puts("ended");
        fflush(stdout);
        _exit(0);
    }
    if (write(pipes[1], "x", 1) != 1) return 1;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("%ld %ld %ld\n", taken[0] + taken[1], taken[2], taken[3]);
    return 0;
}
