/* Metrics of your program, for the Pegel agent on its node.
 *
 *     pegel_counter *iterations =
 *         pegel_counter_new("solver_iterations_total", "Iterations", "phase=assembly");
 *     pegel_add(iterations, 1);
 *
 * Create a handle once and keep it; it stays valid until the process ends, in children of fork() too,
 * and is never freed. Creating one looks the series up and may wait for other threads that do the same.
 *
 * An update is a few atomic instructions in shared memory: no system call, no lock, no allocation. It
 * never fails, and is safe in a signal handler. Every function accepts NULL in place of a handle and
 * does nothing then, so that errors need not be checked.
 *
 * Labels are written "key=value,key=value"; a backslash escapes a comma, an equals sign or another
 * backslash in a value. The bare words "pid" and "rank" request labels that distinguish processes or
 * ranks: "phase=assembly,rank". NULL and "" mean no labels; likewise no help.
 *
 * Without an agent on the node the program runs unchanged, and an agent that starts later finds the
 * totals so far. PEGEL_DISABLE=1 in the environment turns metrics off.
 */
#ifndef PEGEL_H
#define PEGEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pegel_counter pegel_counter;
typedef struct pegel_float_counter pegel_float_counter;
typedef struct pegel_gauge pegel_gauge;
typedef struct pegel_histogram pegel_histogram;
typedef struct pegel_timer pegel_timer;
typedef struct pegel_point pegel_point;

/* How the values of one gauge in several programs are combined. */
enum pegel_aggregation {
    PEGEL_LAST = 0, /* the value that was set last */
    PEGEL_MIN = 1,
    PEGEL_MAX = 2,
    PEGEL_SUM = 3
};

/* A whole number that only grows. An amount of 2^63 or more was negative before a cast and is ignored. */
pegel_counter *pegel_counter_new(const char *name, const char *help, const char *labels);
void pegel_add(pegel_counter *counter, uint64_t amount);

/* A floating point number that only grows: seconds, joules. */
pegel_float_counter *pegel_float_counter_new(const char *name, const char *help, const char *labels);
void pegel_add_float(pegel_float_counter *counter, double amount);

/* A number that goes up and down. */
pegel_gauge *pegel_gauge_new(const char *name, const char *help, const char *labels,
                             int aggregation);
void pegel_set(pegel_gauge *gauge, double value);
void pegel_change(pegel_gauge *gauge, double by);

/* The distribution of a size: count, sum, smallest, largest and buckets. */
pegel_histogram *pegel_histogram_new(const char *name, const char *help, const char *labels);
void pegel_record(pegel_histogram *histogram, double value);

/* The duration of an operation, in seconds:
 *     uint64_t since = pegel_start();
 *     work();
 *     pegel_stop(timer, since);
 */
pegel_timer *pegel_timer_new(const char *name, const char *help, const char *labels);
uint64_t pegel_start(void);
void pegel_stop(pegel_timer *timer, uint64_t since);
void pegel_record_seconds(pegel_timer *timer, double seconds);

/* Single values with their own timestamps, in milliseconds since 1970; the first form uses the current
 * time. */
pegel_point *pegel_point_new(const char *name, const char *help, const char *labels);
void pegel_point_add(pegel_point *point, double value);
void pegel_point_add_at(pegel_point *point, double value, int64_t time_ms);

/* Marks and phases, which every chart shows: a datagram to the agent on this node. They never wait; marks
 * that reach no agent are lost and counted.
 *     uint64_t solve = pegel_phase_begin("solve");
 *     work();
 *     pegel_phase_end("solve", solve);
 */
void pegel_mark(const char *text);
uint64_t pegel_phase_begin(const char *name);
void pegel_phase_end(const char *name, uint64_t number);
uint64_t pegel_marks_lost(void);

/* Sends the values of this process to another statsd server as well, "HOST:PORT" or "unix:PATH", from a
 * thread of the library: changed values only. PEGEL_STATSD in the environment does the same; see
 * docs/statsd-output.md. Returns 0, or -1 with the reason in pegel_error(). */
int pegel_statsd_start(const char *address);

/* Turns sending on or off for series whose names match a pattern, in which * stands for any text. */
void pegel_statsd_switch(const char *pattern, int on);

/* Sends what changed now, not at the next interval. Never waits. */
void pegel_statsd_flush(void);

/* Returns the number of datagrams that could not be sent. */
uint64_t pegel_statsd_errors(void);

/* Returns 1 if an agent can read what this program counts. 0 before the first series, if there is no space
 * in shared memory, and if metrics are turned off. */
int pegel_is_published(void);

/* Returns why the last pegel_..._new of this thread returned NULL; "" if it did not. Valid until the thread's
 * next call of such a function. */
const char *pegel_error(void);

/* Returns the version of the library, such as "0.1.0". */
const char *pegel_version(void);

#ifdef __cplusplus
}
#endif

#endif
