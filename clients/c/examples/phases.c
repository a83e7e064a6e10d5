/* Marks and phases:
 *
 *     cc phases.c $(pkg-config --cflags --libs pegel) -o phases
 */
#include <pegel.h>

#include <stdio.h>

int main(void)
{
    uint64_t outer = pegel_phase_begin("outer");
    uint64_t inner = pegel_phase_begin("inner");

    pegel_mark("checkpoint 12");
    pegel_phase_end("inner", inner);
    pegel_phase_end("outer", outer);
    (void)pegel_phase_begin("never ends");
    pegel_mark(NULL);
    pegel_phase_end("never began", 0);
    printf("%llu lost\n", (unsigned long long)pegel_marks_lost());
    return 0;
}
