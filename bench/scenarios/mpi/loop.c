/* Prints the cost of one call in nanoseconds, for several functions: the minimum over many rounds, in CPU time of this
   thread. With the argument "multiple" it requests MPI_THREAD_MULTIPLE. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { CALLS = 20000, ROUNDS = 60 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static double datum;

static void comm_rank(void) {
    int rank;
    MPI_Comm_rank(MPI_COMM_SELF, &rank);
}

static void send_nowhere(void) {
    MPI_Send(&datum, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_SELF);
}

static void receive_nothing(void) {
    MPI_Recv(&datum, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
}

static void iprobe(void) {
    int flag;
    MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
}

static void exchange(void) {
    double other;
    MPI_Sendrecv(&datum, 1, MPI_DOUBLE, 0, 0, &other, 1, MPI_DOUBLE, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
}

static void allreduce(void) {
    double sum;
    MPI_Allreduce(&datum, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF);
}

/* What no wrapper that measures time can avoid: two readings of the processor's counter and three additions, which are
   atomic if several threads may call MPI at once. */
static unsigned long long counts[3];

static unsigned long long ticks(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    unsigned long long value;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
#else
    return (unsigned long long)now();
#endif
}

static void floor_single(void) {
    volatile unsigned long long *to = counts;
    unsigned long long begin = ticks();
    to[0] += 1;
    to[1] += 8;
    to[2] += ticks() - begin;
}

static void floor_multiple(void) {
    unsigned long long begin = ticks();
    __atomic_fetch_add(&counts[0], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&counts[1], 8, __ATOMIC_RELAXED);
    __atomic_fetch_add(&counts[2], ticks() - begin, __ATOMIC_RELAXED);
}

static void measure(const char *name, void (*call)(void)) {
    double best = 1e18;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = now();
        for (int i = 0; i < CALLS; i++) call();
        double each = (now() - begin) / CALLS;
        if (each < best) best = each;
    }
    printf("%s %.2f\n", name, best);
}

int main(int argc, char **argv) {
    int wanted = MPI_THREAD_SINGLE, provided;
    if (argc > 1 && strcmp(argv[1], "multiple") == 0) wanted = MPI_THREAD_MULTIPLE;
    MPI_Init_thread(&argc, &argv, wanted, &provided);
    if (provided < wanted) return 1;
    measure("floor", wanted == MPI_THREAD_MULTIPLE ? floor_multiple : floor_single);
    measure("MPI_Comm_rank", comm_rank);
    measure("MPI_Send", send_nowhere);
    measure("MPI_Recv", receive_nothing);
    measure("MPI_Iprobe", iprobe);
    measure("MPI_Sendrecv", exchange);
    measure("MPI_Allreduce", allreduce);
    MPI_Finalize();
    return 0;
}
