/* Uses CPU time and memory, and has a child that uses more memory. Prints the CPU time of both in microseconds, and
   the larger peak memory in KiB, as the kernel accounts them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void use(size_t bytes) {
    volatile char *memory = malloc(bytes);
    struct rusage usage;
    do {
        for (size_t i = 0; i < bytes; i += 4096) memory[i]++;
        getrusage(RUSAGE_SELF, &usage);
    } while (usage.ru_utime.tv_sec == 0 && usage.ru_utime.tv_usec + usage.ru_stime.tv_usec < 200000);
}

static long micros(const struct rusage *usage) {
    return 1000000L * (usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) + usage->ru_utime.tv_usec +
           usage->ru_stime.tv_usec;
}

int main(void) {
    struct rusage own, child;
    pid_t pid = fork();
    if (pid == 0) {
        use(96 << 20);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    use(64 << 20);
    getrusage(RUSAGE_SELF, &own);
    getrusage(RUSAGE_CHILDREN, &child);
    printf("%ld %ld\n", micros(&own) + micros(&child), child.ru_maxrss);
    return 0;
}
