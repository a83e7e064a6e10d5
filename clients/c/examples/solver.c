/* A small solver with metrics: Jacobi's method for a tridiagonal system.
 *
 *     cc solver.c $(pkg-config --cflags --libs pegel) -lm -o solver
 *     LD_LIBRARY_PATH=$(pkg-config --variable=libdir pegel) ./solver 200
 */
#include <pegel.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 1000

static double sweep(const double *x, double *next)
{
    double change = 0.0;
    int i;
    for (i = 0; i < N; i++) {
        double left = i > 0 ? x[i - 1] : 0.0;
        double right = i < N - 1 ? x[i + 1] : 0.0;
        next[i] = (1.0 + left + right) / 2.0;
        change = fmax(change, fabs(next[i] - x[i]));
    }
    return change;
}

int main(int argc, char **argv)
{
    static double x[N], next[N];
    int steps = argc > 1 ? atoi(argv[1]) : 200;
    int step;

    pegel_counter *iterations =
        pegel_counter_new("solver_iterations_total", "Iterations of the solver.", "phase=solve");
    pegel_float_counter *busy = pegel_float_counter_new("solver_busy_seconds_total", NULL, NULL);
    pegel_gauge *residual = pegel_gauge_new("solver_residual", "What is left of the error.", "rank",
                                            PEGEL_MAX);
    pegel_timer *timer = pegel_timer_new("solver_step_seconds", NULL, NULL);
    pegel_histogram *changes = pegel_histogram_new("solver_change", NULL, NULL);
    pegel_point *history = pegel_point_new("solver_residual_history", NULL, NULL);

    for (step = 0; step < steps; step++) {
        uint64_t since = pegel_start();
        double change = sweep(x, next);
        memcpy(x, next, sizeof x);
        pegel_stop(timer, since);
        pegel_add_float(busy, 1e-6);
        pegel_add(iterations, 1);
        pegel_set(residual, change);
        pegel_record(changes, change);
        pegel_point_add(history, change);
    }
    printf("%d steps, published: %s\n", steps, pegel_is_published() ? "true" : "false");
    return 0;
}
