/* Counts what it reads, for tests of the statsd output: "add N" counts steps, "io N" counts bytes, "off" and
 * "on" switch the bytes, "flush" sends at once. Each line is answered.
 *
 *     PEGEL_STATSD=127.0.0.1:8125 ./emitter
 */
#include <pegel.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    char line[256];
    pegel_counter *steps = pegel_counter_new("emitter.steps", NULL, "q=main");
    pegel_counter *bytes = pegel_counter_new("emitter.io.bytes", NULL, NULL);
    pegel_gauge *depth = pegel_gauge_new("emitter.depth", NULL, NULL, PEGEL_LAST);

    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strncmp(line, "add ", 4) == 0)
            pegel_add(steps, strtoull(line + 4, NULL, 10));
        else if (strncmp(line, "io ", 3) == 0)
            pegel_add(bytes, strtoull(line + 3, NULL, 10));
        else if (strncmp(line, "set ", 4) == 0)
            pegel_set(depth, strtod(line + 4, NULL));
        else if (strcmp(line, "off\n") == 0)
            pegel_statsd_switch("emitter.io.*", 0);
        else if (strcmp(line, "on\n") == 0)
            pegel_statsd_switch("emitter.io.*", 1);
        else if (strcmp(line, "flush\n") == 0)
            pegel_statsd_flush();
        else if (strncmp(line, "server ", 7) == 0) {
            line[strcspn(line, "\n")] = '\0';
            if (pegel_statsd_start(line + 7) != 0)
                printf("%s: ", pegel_error());
        }
        printf("%llu errors\n", (unsigned long long)pegel_statsd_errors());
        fflush(stdout);
    }
    return 0;
}
