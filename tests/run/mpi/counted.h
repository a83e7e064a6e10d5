/* A program that counts its own MPI calls, to be compared with what the preloaded library counted.
   C(NAME, BYTES, ARGUMENTS...) makes a call, insists on success, and counts it. write_counts() leaves a line
   "NAME HITS BYTES" for each name in the file $COUNTS.RANK. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct { const char *name; long long hits, bytes; } counts[700];
static int count_of_names;

static void count(const char *name, long long bytes) {
    int i = 0;
    while (i < count_of_names && strcmp(counts[i].name, name) != 0) i++;
    if (i == count_of_names) counts[count_of_names++].name = name;
    counts[i].hits++;
    counts[i].bytes += bytes;
}

static void insist(int is_true, const char *what, int line) {
    if (is_true) return;
    fprintf(stderr, "line %d: %s\n", line, what);
    abort();
}

#define INSIST(claim) insist(claim, #claim, __LINE__)
#define C(name, bytes, ...) \
    do { \
        insist(name(__VA_ARGS__) == MPI_SUCCESS, #name " failed", __LINE__); \
        count(#name, bytes); \
    } while (0)

#define FINALIZE() \
    do { \
        INSIST(MPI_Finalize() == MPI_SUCCESS); \
        count("MPI_Finalize", 0); \
    } while (0)

/* Starts a call that does not block, and waits for it. */
#define I(name, bytes, ...) \
    do { \
        MPI_Request request; \
        C(name, bytes, __VA_ARGS__, &request); \
        C(MPI_Wait, 0, &request, MPI_STATUS_IGNORE); \
    } while (0)

/* Makes a persistent request, starts it twice and frees it: the bytes count at each start. */
#define P(name, bytes, ...) \
    do { \
        MPI_Request request; \
        C(name, 0, __VA_ARGS__, &request); \
        for (int twice = 0; twice < 2; twice++) { \
            C(MPI_Start, bytes, &request); \
            C(MPI_Wait, 0, &request, MPI_STATUS_IGNORE); \
        } \
        C(MPI_Request_free, 0, &request); \
    } while (0)

static void write_counts(int rank) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", getenv("COUNTS"), rank);
    FILE *file = fopen(path, "w");
    INSIST(file != NULL);
    for (int i = 0; i < count_of_names; i++)
        fprintf(file, "%s %lld %lld\n", counts[i].name, counts[i].hits, counts[i].bytes);
    INSIST(fclose(file) == 0);
}
