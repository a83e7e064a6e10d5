/* Passes invalid arguments, none of which does any harm, and prints the error of each. */
#include <pegel.h>

#include <stdio.h>
#include <string.h>

static int failures;

static void expect(int is_true, const char *what)
{
    if (!is_true) {
        printf("not so: %s\n", what);
        failures++;
    }
}

static void refused(const char *name, const char *labels)
{
    pegel_counter *counter = pegel_counter_new(name, NULL, labels);
    expect(counter == NULL, "refused");
    expect(strlen(pegel_error()) > 0, "with a reason");
    printf("%s\n", pegel_error());
    pegel_add(counter, 1);
}

int main(void)
{
    pegel_counter *one;

    refused(NULL, NULL);
    refused("", NULL);
    refused("a{b}", NULL);
    refused("\xff", NULL);
    refused("a_total", "phase");
    refused("a_total", "=x");
    refused("a_total", "a=1,a=2");
    refused("a_total", "pid=7");
    expect(pegel_gauge_new("g", NULL, NULL, 17) == NULL, "no such aggregation");
    printf("%s\n", pegel_error());

    pegel_add(NULL, 1);
    pegel_add_float(NULL, 1.0);
    pegel_set(NULL, 1.0);
    pegel_change(NULL, 1.0);
    pegel_record(NULL, 1.0);
    pegel_stop(NULL, 0);
    pegel_record_seconds(NULL, 1.0);
    pegel_point_add(NULL, 1.0);
    pegel_point_add_at(NULL, 1.0, 0);

    one = pegel_counter_new("a_total", "Help.", "b=\\,\\=\\\\,a=1,pid");
    expect(one != NULL, "made");
    expect(strlen(pegel_error()) == 0, "no reason left");
    expect(one == pegel_counter_new("a_total", NULL, "a=1,b=\\,\\=\\\\,pid"), "the same series");
    expect(one != pegel_counter_new("a_total", NULL, "a=1"), "another series");
    expect(pegel_start() > 0, "a clock");
    pegel_add(one, 3);
    printf("version %s\n", pegel_version());
    return failures;
}
